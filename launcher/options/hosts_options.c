/* From options to a job on several hosts: see hosts_options.h. */
#include "launcher/options/hosts_options.h"

#include "base/buffer.h"
#include "base/memory.h"
#include "base/text/parse.h"
#include "launcher/options/values.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LAST_CALL_MS       30000
#define SHORT_LAST_CALL    "last_call_timeout=2"
#define NAMES_MAX          1024 /* largest number of variables that are passed on */

struct hosts_block {
    struct hosts_block *next;
    char bytes[];
};

struct describer {
    const struct options *options;
    struct hosts_choice *out;
    struct cr_error *err;
};

/* ---- helpers ---- */

static bool is_given(const struct options *o, enum option_id id) {
    return o->source[id] != CR_FROM_DEFAULT;
}

static int name_option(const struct describer *d, enum option_id id, int rc) {
    char label[CR_OPTION_LABEL_MAX];
    if (rc < 0) (void) cr_wrap(d->err, "%s", option_label(d->options, id, label));
    return rc;
}

/* Returns zeroed memory of `size` bytes, which hosts_choice_done() frees; or NULL, and sets the
 * error. */
static void *allocate(struct describer *d, size_t size) {
    struct hosts_block *block = calloc(1, sizeof(*block) + size);
    if (block == NULL) {
        (void) cr_fail(d->err, -ENOMEM, "no memory left to describe the job");
        return NULL;
    }
    block->next = d->out->memory;
    d->out->memory = block;
    return block->bytes;
}

__attribute__((format(printf, 2, 3))) static char *format(struct describer *d, const char *fmt,
                                                          ...) {
    va_list ap;
    va_start(ap, fmt);
    CR_AUTO_FREE char *text = NULL;
    int n = vasprintf(&text, fmt, ap);
    va_end(ap);
    char *kept = n < 0 ? NULL : allocate(d, (size_t) n + 1);
    if (n < 0) text = NULL;
    if (kept != NULL) memcpy(kept, text, (size_t) n + 1);
    return kept;
}

/* ---- hosts and workers ---- */

static int read_hosts(struct describer *d, const char *hostfile) {
    const char *hosts = d->options->value[OPTION_HOSTS], *on = d->options->value[OPTION_ON];
    const char *path = d->options->value[OPTION_HOSTFILE];
    if ((hosts != NULL) + (path != NULL) + (on != NULL) > 1) {
        return cr_fail(d->err, -EINVAL,
                       "--hosts, --hostfile and --on exclude each other; give one");
    }
    if (hosts != NULL) {
        return name_option(d, OPTION_HOSTS, hosts_read_list(hosts, &d->out->list, d->err));
    }
    if (on != NULL && strcmp(on, HOSTS_ON_ALL) != 0) {
        int rc = hosts_read_list(on, &d->out->list, d->err);
        if (rc == 0) rc = hosts_refuse_users(&d->out->list, d->err);
        return name_option(d, OPTION_ON, rc);
    }
    if (path == NULL) path = HOSTS_ON_ALL;
    int rc = hosts_read_file(hostfile, &d->out->list, d->err);
    if (rc == 0 && on != NULL) rc = hosts_refuse_users(&d->out->list, d->err);
    if (rc < 0) return cr_wrap(d->err, "%s", path);
    if (d->out->list.count > 0) return 0;
    return cr_fail(d->err, -EINVAL, "%s: there is no host in '%.300s'",
                   on != NULL ? "--on" : "--hostfile", path);
}

/* Sets *out to the number of workers that --nproc-per-node gives. Sets it to 0 if the option is not
 * given, or if its value is a word such as "gpu". Returns 0; or a negative errno, and sets the
 * error. */
static int read_nproc(struct describer *d, uint32_t *out) {
    const char *text = d->options->value[OPTION_NPROC];
    *out = 0;
    if (!is_given(d->options, OPTION_NPROC)) return 0;
    if (value_word(text, "auto cpu gpu xpu npu", NULL) == 0) return 0;
    return name_option(d, OPTION_NPROC,
                       value_count(text, "a number of workers", 1, UINT16_MAX, out, d->err));
}

static int check_slots(struct describer *d, const struct hosts_entry *host, uint32_t nproc) {
    char label[CR_OPTION_LABEL_MAX];
    if (host->slots == 0 || nproc <= host->slots) return 0;
    return cr_fail(d->err, -EINVAL, "%s=%u, but '%s' has %u slots; give one of the two",
                   option_label(d->options, OPTION_NPROC, label), nproc, host->name, host->slots);
}

/* Sets counts[i] to the number of workers of host i: the value of --nproc-per-node; if the option
 * is not given, the host's slots; if the host has no slots, 1. If the value is a word such as
 * "gpu", sets counts[i] to 0, because the host itself finds out the number. */
static int count_workers(struct describer *d, uint32_t *counts) {
    uint32_t nproc = 0;
    bool given = is_given(d->options, OPTION_NPROC);
    int rc = read_nproc(d, &nproc);
    for (size_t i = 0; i < d->out->list.count && rc == 0; i++) {
        const struct hosts_entry *host = &d->out->list.items[i];
        rc = check_slots(d, host, nproc);
        counts[i] = given ? nproc : host->slots != 0 ? host->slots : 1;
    }
    return rc;
}

/* If --world-size is given, divides its workers among the hosts, in the order of the list: each
 * host gets counts[i] workers, and the last one that is needed gets the rest. Hosts that get no
 * workers are removed from the list. */
static int share_out(struct describer *d, uint32_t *counts) {
    struct hosts_list *list = &d->out->list;
    uint32_t left = 0, wanted = 0;
    if (!is_given(d->options, OPTION_WORLD_SIZE)) return 0;
    int rc = value_count(d->options->value[OPTION_WORLD_SIZE], "a number of workers", 1, UINT32_MAX,
                         &wanted, d->err);
    if (rc < 0) return name_option(d, OPTION_WORLD_SIZE, rc);
    left = wanted;
    size_t used = 0;
    for (; used < list->count && left > 0; used++) {
        if (counts[used] == 0) {
            return cr_fail(d->err, -EINVAL,
                           "--world-size=%u and --nproc-per-node=%s exclude each other; give one",
                           wanted, d->options->value[OPTION_NPROC]);
        }
        if (counts[used] > left) counts[used] = left;
        left -= counts[used];
    }
    list->count = used;
    if (left == 0) return 0;
    return cr_fail(d->err, -EINVAL,
                   "--world-size=%u, but the hosts have room for %u workers; give more hosts or "
                   "more slots", wanted, wanted - left);
}

/* With several programs, refuses --world-size and slots: each program has a number of workers of
 * its own. Returns 0; or -EINVAL, and sets the error. */
static int check_programs(struct describer *d) {
    const struct options *o = d->options;
    if (o->more == NULL) return 0;
    if (is_given(o, OPTION_WORLD_SIZE)) {
        return cr_fail(d->err, -EINVAL, "--world-size cannot be shared out among several programs; "
                       "give each of them --nproc-per-node");
    }
    for (size_t i = 0; i < d->out->list.count; i++) {
        const struct hosts_entry *host = &d->out->list.items[i];
        if (host->slots == 0 || is_given(o, OPTION_NPROC)) continue;
        return cr_fail(d->err, -EINVAL, "the %u slots of '%s' cannot be shared out among several "
                       "programs; give each of them --nproc-per-node", host->slots, host->name);
    }
    return 0;
}

static int describe_workers(struct describer *d) {
    size_t n = d->out->list.count;
    uint32_t *counts = allocate(d, n * sizeof(*counts));
    const char **texts = allocate(d, n * sizeof(*texts));
    if (counts == NULL || texts == NULL) return -ENOMEM;
    int rc = check_programs(d);
    if (rc == 0) rc = count_workers(d, counts);
    if (rc == 0) rc = share_out(d, counts);
    for (size_t i = 0; i < d->out->list.count && rc == 0; i++) {
        texts[i] = counts[i] == 0 ? d->options->value[OPTION_NPROC] : format(d, "%u", counts[i]);
        if (texts[i] == NULL) rc = -ENOMEM;
    }
    d->out->job.hosts = d->out->list.items;
    d->out->job.host_count = d->out->list.count;
    d->out->job.workers = texts;
    return rc;
}

static int describe_nodes(struct describer *d) {
    struct hosts_job *job = &d->out->job;
    job->min_nodes = job->max_nodes = (uint32_t) job->host_count;
    if (!is_given(d->options, OPTION_NNODES)) return 0;
    int rc = value_nnodes(d->options->value[OPTION_NNODES], &job->min_nodes, &job->max_nodes,
                          d->err);
    if (rc < 0) return name_option(d, OPTION_NNODES, rc);
    if (job->min_nodes <= job->host_count) return 0;
    char label[CR_OPTION_LABEL_MAX];
    return cr_fail(d->err, -EINVAL, "%s=%s, but there are only %zu hosts; give more hosts, or "
                   "leave --nnodes out", option_label(d->options, OPTION_NNODES, label),
                   d->options->value[OPTION_NNODES], job->host_count);
}

/* ---- options of the launchers ---- */

/* Returns true for an option that the launchers do not get as the user gave it: either only the
 * starter needs it, or the starter or the deputies give it another value. */
static bool is_own(enum option_id id) {
    static const enum option_id own[] = {
        OPTION_HOSTS, OPTION_HOSTFILE, OPTION_ON, OPTION_WORLD_SIZE, OPTION_EXPORT, OPTION_RSH,
        OPTION_FAN_OUT, OPTION_COPY_CRUN, OPTION_PTY, OPTION_NPROC, OPTION_NNODES,
        OPTION_RDZV_CONF, OPTION_SCHEDULER, OPTION_RDZV_TOKEN_FILE};
    for (size_t i = 0; i < CR_ARRAY_LEN(own); i++) {
        if (own[i] == id) return true;
    }
    return false;
}

static int refuse_contradictions(struct describer *d) {
    char label[CR_OPTION_LABEL_MAX];
    static const enum option_id refused[] = {OPTION_STANDALONE, OPTION_NODE_RANK,
                                             OPTION_LOCAL_ADDR};
    for (size_t i = 0; i < CR_ARRAY_LEN(refused); i++) {
        bool is_on = d->options->value[refused[i]] != NULL && is_given(d->options, refused[i]);
        if (!is_on) continue;
        return cr_fail(d->err, -EINVAL,
                       "%s is for one node, but --hosts or --hostfile starts several; give only "
                       "one of them", option_label(d->options, refused[i], label));
    }
    return 0;
}

/* Sets how the starter reaches the hosts: by ssh, by the command of --rsh, or (with --on) by their
 * job daemons. */
static int describe_way(struct describer *d) {
    struct hosts_job *job = &d->out->job;
    bool is_on = d->options->value[OPTION_ON] != NULL;
    job->rsh = is_on ? HOSTS_CALL : d->options->value[OPTION_RSH];
    job->copy_crun = d->options->value[OPTION_COPY_CRUN] != NULL;
    job->has_pty = d->options->value[OPTION_PTY] != NULL;
    job->starts_local = is_on || !is_given(d->options, OPTION_RSH);
    if (!is_on || d->options->source[OPTION_RSH] != CR_FROM_LINE) return 0;
    return cr_fail(d->err, -EINVAL, "--on reaches the hosts by their daemons, --rsh by a command; "
                   "give one of them");
}

/* Writes one word for each value of an option that was given several times. Returns the number of
 * words; a word is NULL if memory is short. */
static size_t add_repeated(struct describer *d, int option, const char **words) {
    size_t n = 0;
    for (size_t i = 0; i < d->options->repeated_count; i++) {
        if (d->options->repeated_of[i] != option) continue;
        words[n++] = format(d, "--%s=%s", crun_command.options[option].name,
                            d->options->repeated[i]);
    }
    return n;
}

static int describe_options(struct describer *d, const char *run_id) {
    const struct options *o = d->options;
    struct hosts_job *job = &d->out->job;
    const char **words =
        allocate(d, (OPTION_COUNT + OPTIONS_REPEATED_MAX + 5) * sizeof(*words));
    size_t n = 0;
    if (words == NULL) return -ENOMEM;
    job->user_meets = is_given(o, OPTION_RDZV_ENDPOINT) || is_given(o, OPTION_MASTER_ADDR) ||
                      is_given(o, OPTION_MASTER_PORT);
    words[n++] = "--scheduler=none";
    words[n++] = format(d, "--nnodes=%u:%u", job->min_nodes, job->max_nodes);
    if (!is_given(o, OPTION_RDZV_BACKEND) && !job->user_meets) words[n++] = "--rdzv-backend=c10d";
    if (!is_given(o, OPTION_RDZV_ID)) words[n++] = format(d, "--rdzv-id=%s", run_id);
    for (int i = 0; i < OPTION_COUNT; i++) {
        const struct cr_option *option = &crun_command.options[i];
        bool is_flag = option->value_name == NULL;
        if (!is_given(o, (enum option_id) i) || o->value[i] == NULL) continue;
        if (is_own((enum option_id) i)) continue;
        if (option->repeats && o->source[i] == CR_FROM_LINE) {
            n += add_repeated(d, i, &words[n]);
            continue;
        }
        words[n++] = format(d, "--%s%s%s", option->name, is_flag ? "" : "=",
                            is_flag ? "" : o->value[i]);
    }
    for (size_t i = 0; i < n; i++) {
        if (words[i] == NULL) return -ENOMEM;
    }
    job->options = words;
    return 0;
}

/* Sets job->conf and job->last_call_ms. The starter waits up to last_call_ms for late hosts, and
 * then starts all launchers at once. So the coordinator's own last call can be short; job->conf
 * makes it short unless the user has given last_call_timeout. */
static int describe_conf(struct describer *d) {
    const char *conf = d->options->value[OPTION_RDZV_CONF];
    struct hosts_job *job = &d->out->job;
    struct rendezvous_options settings = {.last_call_timeout_ms = -1};
    char unknown[VALUE_NAME_MAX];
    int rc = value_rdzv_conf(conf, &settings, unknown, d->err);
    if (rc < 0) return name_option(d, OPTION_RDZV_CONF, rc);
    bool given = settings.last_call_timeout_ms >= 0;
    job->last_call_ms = given ? settings.last_call_timeout_ms : LAST_CALL_MS;
    job->conf = given || job->min_nodes == job->max_nodes
                    ? conf
                    : format(d, "%s%s" SHORT_LAST_CALL, conf, conf[0] != '\0' ? "," : "");
    return job->conf == NULL ? -ENOMEM : 0;
}

static int describe_program(struct describer *d) {
    const struct options *o = d->options;
    size_t n = 0, count = 0;
    while (o->args[count] != NULL) count++;
    for (char **more = o->more; more != NULL && *more != NULL; more++) count++;
    const char **words = allocate(d, (count + 4) * sizeof(*words));
    if (words == NULL) return -ENOMEM;
    words[n++] = "--";
    words[n++] = o->program;
    for (char *const *arg = o->args; *arg != NULL; arg++) words[n++] = *arg;
    if (o->more != NULL) words[n++] = ":";
    for (char **more = o->more; more != NULL && *more != NULL; more++) words[n++] = *more;
    d->out->job.program = words;
    return 0;
}

/* ---- variables ---- */

/* Returns true if the deputies pass the variable to the launchers even without --export. A name in
 * names[] that ends with '*' means all names that begin with the text before it. */
static bool is_passed_on(const char *variable) {
    static const char *const names[] = {
        "PATH", "LD_LIBRARY_PATH", "PYTHON*", "VIRTUAL_ENV", "CONDA_*", "LOGLEVEL", "NCCL_*",
        "TORCH*", "PYTORCH_*", "GLOO_*", "UCX_*", "FI_*", "OMP_*", "MKL_*", "KMP_*", "CUDA_*",
        "TP_SOCKET_IFNAME"};
    size_t n = strcspn(variable, "=");
    if (strncmp(variable, "TORCHELASTIC_", 13) == 0) return false; /* set by a launcher around
                                                                    * crun */
    for (size_t i = 0; i < CR_ARRAY_LEN(names); i++) {
        size_t len = strlen(names[i]);
        bool is_pattern = names[i][len - 1] == '*';
        if (is_pattern ? n >= len - 1 && strncmp(names[i], variable, len - 1) == 0
                       : n == len && strncmp(names[i], variable, n) == 0) {
            return true;
        }
    }
    return false;
}

static const char *find_variable(char *const *environment, const char *name) {
    size_t n = strlen(name);
    for (; *environment != NULL; environment++) {
        if (strncmp(*environment, name, n) == 0 && (*environment)[n] == '=') return *environment;
    }
    return NULL;
}

/* Appends the variables of --export: "NAME=VALUE", or "NAME", which means this process's value of
 * NAME. They stand after the variables that are passed in any case, so that they replace those of
 * the same name. */
static int add_exported(struct describer *d, char *const *environment, const char **texts,
                        size_t *n) {
    for (size_t i = 0; i < d->options->repeated_count; i++) {
        const char *text = d->options->repeated[i];
        if (d->options->repeated_of[i] != OPTION_EXPORT) continue;
        if (text[0] == '=' || text[0] == '\0') {
            return cr_fail(d->err, -EINVAL, "--export: '%.100s' has no name; write NAME or "
                           "NAME=VALUE", text);
        }
        if (strchr(text, '=') == NULL) text = find_variable(environment, text);
        if (text == NULL) {
            return cr_fail(d->err, -ENOENT, "--export: the variable '%.200s' is not set here; set "
                           "it, or give its value: %.200s=VALUE", d->options->repeated[i],
                           d->options->repeated[i]);
        }
        texts[(*n)++] = text;
    }
    return 0;
}

static int describe_variables(struct describer *d, char *const *environment) {
    size_t n = 0;
    const char **texts =
        allocate(d, (NAMES_MAX + OPTIONS_REPEATED_MAX + 1) * sizeof(*texts));
    if (texts == NULL) return -ENOMEM;
    for (size_t i = 0; environment[i] != NULL && n < NAMES_MAX; i++) {
        if (is_passed_on(environment[i])) texts[n++] = environment[i];
    }
    d->out->job.variables = texts;
    return add_exported(d, environment, texts, &n);
}

/* ---- the whole ---- */

int hosts_describe(const struct options *options, const char *hostfile, char *const *environment,
                   const char *run_id, struct hosts_choice *out, struct cr_error *err) {
    struct cr_error reason = {0};
    struct describer d = {.options = options, .out = out, .err = &reason};
    struct hosts_job *job = &out->job;
    *out = (struct hosts_choice){0};
    int rc = refuse_contradictions(&d);
    if (rc == 0) rc = read_hosts(&d, hostfile);
    if (rc == 0) rc = describe_workers(&d);
    if (rc == 0) rc = describe_nodes(&d);
    if (rc == 0) rc = describe_conf(&d);
    if (rc == 0) rc = describe_options(&d, run_id);
    if (rc == 0) rc = describe_program(&d);
    if (rc == 0) rc = describe_variables(&d, environment);
    if (rc == 0) {
        rc = name_option(&d, OPTION_FAN_OUT,
                         value_count(options->value[OPTION_FAN_OUT], "a number of hosts", 1,
                                     HOSTS_MAX, &job->fan_out, &reason));
    }
    if (rc == 0) rc = describe_way(&d);
    return rc < 0 ? cr_fail(err, rc, "%s", reason.text) : 0;
}

int hosts_fill_one_node(struct options *options, struct hosts_choice *out, struct cr_error *err) {
    struct describer d = {.options = options, .out = out, .err = err};
    uint32_t wanted = 0, max_nodes = 1, min_nodes = 1;
    *out = (struct hosts_choice){0};
    const char *lone = is_given(options, OPTION_EXPORT) ? "export"
                       : is_given(options, OPTION_COPY_CRUN) ? "copy-crun"
                       : is_given(options, OPTION_PTY)       ? "pty"
                                                             : NULL;
    if (lone != NULL) {
        return cr_fail(err, -EINVAL, "--%s is for a job on several hosts; give --hosts, --hostfile "
                       "or --on with it, or leave it out", lone);
    }
    if (!is_given(options, OPTION_WORLD_SIZE)) return 0;
    if (is_given(options, OPTION_NPROC)) {
        return cr_fail(err, -EINVAL, "--world-size and --nproc-per-node exclude each other on one "
                       "node; give one");
    }
    (void) value_nnodes(options->value[OPTION_NNODES], &min_nodes, &max_nodes, NULL);
    if (max_nodes > 1) {
        return cr_fail(err, -EINVAL, "--world-size needs --hosts or --hostfile if there are "
                       "several nodes; give --nproc-per-node");
    }
    int rc = value_count(options->value[OPTION_WORLD_SIZE], "a number of workers", 1, UINT16_MAX,
                         &wanted, err);
    if (rc < 0) return name_option(&d, OPTION_WORLD_SIZE, rc);
    (void) snprintf(out->nproc, sizeof(out->nproc), "%u", wanted);
    options->value[OPTION_NPROC] = out->nproc;
    options->source[OPTION_NPROC] = CR_FROM_LINE;
    return 0;
}

void hosts_choice_done(struct hosts_choice *choice) {
    for (struct hosts_block *block = choice->memory, *next; block != NULL; block = next) {
        next = block->next;
        free(block);
    }
    hosts_list_done(&choice->list);
    *choice = (struct hosts_choice){0};
}
