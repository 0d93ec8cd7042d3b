/* The table, as people and shells read it: --help, crun(1), the bash completion. What the table
 * cannot say (grammars, exit statuses, variables) stands here once, next to it. */
#include "launcher/options.h"

#include "base/cleanup.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#define LEFT_COLUMN 34
#define LINE_WIDTH  100

static const char *const group_titles[] = {
#define X(id, title) title,
    OPTION_GROUPS(X)
#undef X
};

/* ---- --help ---- */

static const char help_head[] =
    "Usage: crun [options] PROGRAM [arguments...]\n"
    "Starts PROGRAM once for each rank, watches all of them, restarts or ends them together.\n"
    "A drop-in for torchrun, for programs in any language. (Not the OCI runtime of the same "
    "name.)\n";

static const char help_tail[] =
    "\n"
    "Names may be written with _ for -, and shortened while they stay unique. PET_<NAME> sets an\n"
    "option's default, as in PET_NPROC_PER_NODE=4. A PROGRAM that is no executable is run with\n"
    "$PYTHON_EXEC, else python3, else python. ${local_rank} in an argument becomes the local "
    "rank.\n"
    "\n"
    "Exit status: 0 all workers ended well; 1 workers failed, a signal ended the job, or the "
    "machine\n"
    "refused (port in use, log folder not writable); 2 the command line is wrong, nothing was "
    "started.\n"
    "\n"
    "  crun --nproc-per-node=4 --max-restarts=3 train.py --epochs 10\n"
    "  crun --nproc-per-node=gpu ./train_digits\n"
    "\n"
    "More: man crun\n";

/* Words of `text` from column LEFT_COLUMN on, wrapped. */
static int write_wrapped(struct cr_buffer *b, const char *text) {
    size_t column = LEFT_COLUMN;
    int rc = 0;
    while (*text != '\0' && rc == 0) {
        size_t n = strcspn(text, " ");
        if (column > LEFT_COLUMN && column + 1 + n > LINE_WIDTH) {
            rc = cr_buffer_printf(b, "\n%*s", LEFT_COLUMN, "");
            column = LEFT_COLUMN;
        }
        if (rc == 0)
            rc = cr_buffer_printf(b, "%s%.*s", column > LEFT_COLUMN ? " " : "", (int) n, text);
        column += n + (column > LEFT_COLUMN);
        text += n + strspn(text + n, " ");
    }
    return rc;
}

static int write_help_option(struct cr_buffer *b, const struct option_spec *spec) {
    char left[80], right[512];
    char letter[8] = "    ";
    if (spec->letter != 0) (void) snprintf(letter, sizeof(letter), "-%c, ", spec->letter);
    (void) snprintf(left, sizeof(left), "  %s--%s%s%s", letter, spec->name,
                    spec->value_name == NULL ? "" : " ",
                    spec->value_name == NULL ? "" : spec->value_name);
    const char *def = spec->default_value;
    int shown = def != NULL && def[0] != '\0';
    (void) snprintf(right, sizeof(right), "%s%s%s%s", spec->help, shown ? " (default: " : "",
                    shown ? def : "", shown ? ")" : "");
    int rc = cr_buffer_printf(b, "%s", left);
    size_t n = strlen(left);
    if (rc == 0 && n + 1 > LEFT_COLUMN)
        rc = cr_buffer_printf(b, "\n%*s", LEFT_COLUMN, "");
    else if (rc == 0)
        rc = cr_buffer_printf(b, "%*s", (int) (LEFT_COLUMN - n), "");
    if (rc == 0) rc = write_wrapped(b, right);
    return rc == 0 ? cr_buffer_printf(b, "\n") : rc;
}

int options_write_help(struct cr_buffer *b) {
    int rc = cr_buffer_printf(b, "%s", help_head);
    for (int g = 0; g < (int) CR_ARRAY_LEN(group_titles) && rc == 0; g++) {
        rc = cr_buffer_printf(b, "\n%s:\n", group_titles[g]);
        for (int i = 0; i < OPTION_COUNT && rc == 0; i++) {
            if (option_specs[i].group == g) rc = write_help_option(b, &option_specs[i]);
        }
    }
    return rc == 0 ? cr_buffer_printf(b, "%s", help_tail) : rc;
}

/* ---- crun(1) ---- */

static const char man_head[] =
    ".\\\" Written by `make docs` from launcher/options.h; do not edit.\n"
    ".TH CRUN 1 \"\" \"crun " CRUN_VERSION "\" \"User Commands\"\n"
    ".SH NAME\n"
    "crun \\- start, watch and restart the workers of a distributed job\n"
    ".SH SYNOPSIS\n"
    ".B crun\n"
    "[\\fIoptions\\fR] \\fIPROGRAM\\fR [\\fIarguments\\fR...]\n"
    ".SH DESCRIPTION\n"
    "Starts \\fIPROGRAM\\fR once for each rank of this node with the environment that\n"
    ".BR torchrun (1)\n"
    "gives its workers, hosts the store at MASTER_ADDR:MASTER_PORT, and watches the workers. When "
    "one\n"
    "fails, all are stopped and, while restarts are left, started again; the true first failure "
    "is\n"
    "reported with its rank, exit code or signal and last words. Whatever ends\n"
    ".BR crun ,\n"
    "no process stays behind.\n"
    ".PP\n"
    "Options stand before the program; everything after it is the program's. Dashes and "
    "underscores in\n"
    "names are alike, unique prefixes are enough, and the last of two equal options wins. One\n"
    ".B \\-\\-\n"
    "is swallowed, in front of the program or directly behind it.\n"
    ".PP\n"
    "This is not the OCI container runtime that is also called crun.\n"
    ".SS What is run\n"
    "A PROGRAM that ends in .py, a script whose #! line names Python or crun, a text file and a "
    "folder or\n"
    "zip archive with a __main__.py are run as \\fIPYTHON \\-u PROGRAM arguments\\fR. Any other "
    "executable is\n"
    "run itself; a bare name that is no file here is looked for in PATH. PYTHON is $PYTHON_EXEC, "
    "else\n"
    "python3, else python. In every argument $local_rank and ${local_rank} become the local rank "
    "and\n"
    "$$ becomes $.\n"
    ".SH OPTIONS\n";

static const char man_tail[] =
    ".SH \"VALUES\"\n"
    ".TP\n"
    ".B MASK|MAP\n"
    "0 none, 1 stdout, 2 stderr, 3 both, for all local ranks; or RANK:MASK pairs as in 0:3,12:1, "
    "where\n"
    "ranks that are not named get 0.\n"
    ".TP\n"
    ".B HOST[:PORT]\n"
    "IPv6 addresses stand in brackets. Port 0 is any free port.\n"
    ".TP\n"
    ".B K=V,...\n"
    "Seconds: join_timeout (600; timeout, 900, for the static backend), last_call_timeout (30),\n"
    "close_timeout (30), change_notice (30), heartbeat_timeout (5), keep_alive_interval (5),\n"
    "read_timeout (60), coordinator_wait (0). A count: keep_alive_max_attempt (3). True or false: is_host.\n"
    ".SH ENVIRONMENT\n"
    ".TP\n"
    ".B PET_<NAME>\n"
    "Default of an option, as in PET_NPROC_PER_NODE=4. Flags take an integer: 0 is off.\n"
    ".TP\n"
    ".B PYTHON_EXEC\n"
    "The Python to use.\n"
    ".TP\n"
    ".B OMP_NUM_THREADS\n"
    "Set to 1 for the workers if it is unset and there is more than one.\n"
    ".TP\n"
    ".B CUDA_VISIBLE_DEVICES\n"
    "Counted by \\-\\-nproc\\-per\\-node=gpu, divided by \\-\\-virtual\\-local\\-rank, otherwise "
    "passed on.\n"
    ".TP\n"
    ".B LOGLEVEL\n"
    "debug, info, warning (the default) or error: what crun itself says on stderr.\n"
    ".TP\n"
    ".B TORCHELASTIC_ERROR_FILE\n"
    "Where crun writes its own failure, or the root cause's error file, as JSON.\n"
    ".TP\n"
    ".B TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE\n"
    "Default of \\-\\-log\\-line\\-prefix\\-template.\n"
    ".TP\n"
    ".B TORCH_ELASTIC_SHUTDOWN_TIMEOUT\n"
    "Default of \\-\\-shutdown\\-timeout.\n"
    ".TP\n"
    ".B CRUN_CGROUP\n"
    "0: make no cgroup for the workers, even where crun may.\n"
    ".TP\n"
    ".B TMPDIR\n"
    "Where the default log folder is made; else TEMP, TMP, /tmp, /var/tmp, /usr/tmp, the current\n"
    "folder: the first that can be written.\n"
    ".SH SIGNALS\n"
    ".TP\n"
    ".B SIGTERM, SIGINT, SIGHUP, SIGQUIT\n"
    "(\\-\\-signals\\-to\\-handle) The workers get the same one, SIGKILL follows after\n"
    "\\-\\-shutdown\\-timeout.\n"
    ".TP\n"
    ".B SIGUSR1\n"
    "(\\-\\-preemption\\-signals) This node is to go away: workers may save first.\n"
    ".TP\n"
    ".B SIGUSR2\n"
    "Workers that have the worker runtime write their flight records.\n"
    ".SH \"EXIT STATUS\"\n"
    ".TP\n"
    ".B 0\n"
    "All workers of this node ended well.\n"
    ".TP\n"
    ".B 1\n"
    "Workers failed and no restart was left, a handled signal ended the job, or the machine "
    "refused:\n"
    "a port in use, a log folder that is not writable.\n"
    ".TP\n"
    ".B 2\n"
    "The command line (or a PET_ variable) is wrong, or the program cannot be run. Nothing was\n"
    "started.\n"
    ".TP\n"
    ".B 128+n\n"
    "Signal n came before any worker was started, or is not handled.\n"
    ".SH EXAMPLES\n"
    ".nf\n"
    "crun \\-\\-nproc\\-per\\-node=4 \\-\\-max\\-restarts=3 train.py \\-\\-epochs 10\n"
    "crun \\-\\-nproc\\-per\\-node=gpu \\-\\-log\\-dir logs \\-t 3 \\-m my.trainer\n"
    "crun \\-\\-nproc\\-per\\-node=2 ./train_digits \\-\\-checkpoint run.ckpt\n"
    ".fi\n"
    ".SH \"SEE ALSO\"\n"
    ".BR crun\\-agent (1),\n"
    ".BR crun\\-store (1),\n"
    ".BR crunrt (3)\n";

/* roff: a dash that is a dash, and no line that begins with a dot. */
static int write_roff(struct cr_buffer *b, const char *text) {
    int rc = 0;
    for (; *text != '\0' && rc == 0; text++) {
        if (*text == '-' || *text == '\\') rc = cr_buffer_append(b, "\\", 1);
        if (rc == 0) rc = cr_buffer_append(b, text, 1);
    }
    return rc;
}

static int write_man_option(struct cr_buffer *b, int id) {
    const struct option_spec *spec = &option_specs[id];
    char variable[OPTION_LABEL_MAX];
    int rc = cr_buffer_printf(b, ".TP\n.B ");
    if (rc == 0 && spec->letter != 0) rc = cr_buffer_printf(b, "\\-%c, ", spec->letter);
    if (rc == 0) rc = cr_buffer_printf(b, "\\-\\-");
    if (rc == 0) rc = write_roff(b, spec->name);
    if (rc == 0 && spec->value_name != NULL)
        rc = cr_buffer_printf(b, " \\fI%s\\fR", spec->value_name);
    if (rc == 0) rc = cr_buffer_printf(b, "\n%c", toupper((unsigned char) spec->help[0]));
    if (rc == 0) rc = write_roff(b, spec->help + 1);
    if (rc == 0) rc = cr_buffer_printf(b, ".\n");
    if (rc == 0 && spec->default_value != NULL && spec->default_value[0] != '\0') {
        rc = cr_buffer_printf(b, "Default: ");
        if (rc == 0) rc = write_roff(b, spec->default_value);
        if (rc == 0) rc = cr_buffer_printf(b, ".\n");
    }
    option_variable((enum option_id) id, variable);
    if (rc == 0 && spec->has_variable) rc = cr_buffer_printf(b, "(%s)\n", variable);
    return rc;
}

int options_write_man(struct cr_buffer *b) {
    int rc = cr_buffer_printf(b, "%s", man_head);
    for (int g = 0; g < (int) CR_ARRAY_LEN(group_titles) && rc == 0; g++) {
        rc = cr_buffer_printf(b, ".SS \"%s\"\n", group_titles[g]);
        for (int i = 0; i < OPTION_COUNT && rc == 0; i++) {
            if (option_specs[i].group == g) rc = write_man_option(b, i);
        }
    }
    return rc == 0 ? cr_buffer_printf(b, "%s", man_tail) : rc;
}

/* ---- bash ---- */

static const char completion_head[] =
    "# bash completion for crun. Written by `make docs` from launcher/options.h; do not edit.\n"
    "_crun() {\n"
    "    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} i\n"
    "    # \"--name=value\" comes as three words\n"
    "    [[ $cur == '=' ]] && cur=\n"
    "    [[ $prev == '=' ]] && prev=${COMP_WORDS[COMP_CWORD-2]}\n"
    "    case ${prev//_/-} in\n";

static const char completion_tail[] =
    "    esac\n"
    "    if [[ $cur == -* ]]; then\n"
    "        COMPREPLY=($(compgen -W \"$_crun_options\" -- \"${cur//_/-}\"))\n"
    "    else\n"
    "        COMPREPLY=($(compgen -f -- \"$cur\") $(compgen -c -- \"$cur\"))\n"
    "    fi\n"
    "}\n"
    "complete -o bashdefault -o default -F _crun crun\n";

static int write_completion_case(struct cr_buffer *b, const struct option_spec *spec) {
    int rc = cr_buffer_printf(b, "        --%s", spec->name);
    if (rc == 0 && spec->letter != 0) rc = cr_buffer_printf(b, "|-%c", spec->letter);
    if (rc != 0) return rc;
    if (spec->words == NULL) {
        const char *what = strcmp(spec->value_name, "FOLDER") == 0 ? "-d" : "-f";
        return cr_buffer_printf(b, ") COMPREPLY=($(compgen %s -- \"$cur\")); return ;;\n", what);
    }
    return cr_buffer_printf(b, ") COMPREPLY=($(compgen -W \"%s\" -- \"$cur\")); return ;;\n",
                            spec->words);
}

int options_write_completion(struct cr_buffer *b) {
    int rc = cr_buffer_printf(b, "%s", completion_head);
    for (int i = 0; i < OPTION_COUNT && rc == 0; i++) {
        if (option_specs[i].kind == OPTION_VALUE) rc = write_completion_case(b, &option_specs[i]);
    }
    if (rc == 0) rc = cr_buffer_printf(b, "%s", completion_tail);
    if (rc == 0) rc = cr_buffer_printf(b, "_crun_options=\"");
    for (int i = 0; i < OPTION_COUNT && rc == 0; i++) {
        rc = cr_buffer_printf(b, "%s--%s", i == 0 ? "" : " ", option_specs[i].name);
    }
    return rc == 0 ? cr_buffer_printf(b, "\"\n") : rc;
}
