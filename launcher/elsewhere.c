/* Executes the commands ps, attach, logs and stop on other hosts: implements elsewhere.h. */
#include "launcher/elsewhere.h"

#include "base/buffer.h"
#include "base/files/read_file.h"
#include "base/memory.h"
#include "base/text/parse.h"
#include "base/text/text.h"
#include "launcher/report.h"
#include "remote/remote.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#define HOSTFILE_MAX ((size_t) 1 << 20) /* bytes of a hostfile with its NUL */
#define EXIT_FAILED  1
#define EXIT_USAGE   2

int elsewhere_read_hosts(const char *option, const char *path, char **out, struct cr_error *err) {
    *out = malloc(HOSTFILE_MAX);
    if (*out == NULL) return cr_fail(err, -ENOMEM, "no memory left to read the hostfile");
    ssize_t n = cr_read_file(path, *out, HOSTFILE_MAX);
    if (n < 0) {
        return cr_fail(err, (int) n, "%s: cannot read '%.300s': %s", option, path,
                       strerror((int) -n));
    }
    if ((size_t) n + 1 < HOSTFILE_MAX) return 0;
    return cr_fail(err, -EFBIG, "%s: '%.300s' is larger than %zu bytes", option, path,
                   HOSTFILE_MAX - 1);
}

int elsewhere_read_cluster(char **out, struct cr_error *err) {
    const char *path = getenv("CRUN_CLUSTER_HOSTS");
    if (path == NULL || path[0] == '\0') path = REMOTE_HOSTS;
    return elsewhere_read_hosts("--on=" HOSTS_ON_ALL, path, out, err);
}

int elsewhere_port(uint16_t *out, struct cr_error *err) {
    const char *given = getenv("CRUN_AGENT_PORT");
    int64_t port = REMOTE_PORT;
    if (given != NULL && cr_parse_i64(given, 1, UINT16_MAX, &port) < 0) {
        return cr_fail(err, -EINVAL, "CRUN_AGENT_PORT: '%.100s' is no port", given);
    }
    *out = (uint16_t) port;
    return 0;
}

/* ---- one call ---- */

static int complain(int status, const struct cr_error *err) {
    report_line(err->text);
    return status;
}

/* Executes the command argv[3] on the host argv[2], through the job daemon of that host. Returns
 * the exit status. */
static int call_host(const char *const *argv) {
    struct cr_error err = {0};
    uint16_t port;
    (void) prctl(PR_SET_NAME, "crun-call");
    if (argv[2] == NULL || argv[3] == NULL || argv[4] != NULL) {
        (void) cr_fail(&err, -EINVAL, "--call is for crun's own use: see --on");
        return complain(EXIT_USAGE, &err);
    }
    if (elsewhere_port(&port, &err) < 0) return complain(EXIT_USAGE, &err);
    int status = remote_call(argv[2], port, argv[3], true, &err);
    return status >= 0 ? status : complain(REMOTE_FAILED, &err);
}

const struct hosts_caller elsewhere_caller = {.prepare = remote_prepare, .call = call_host};

/* ---- commands on other hosts ---- */

/* Returns the value of the option --on if it stands directly behind the command, and sets *rest to
 * the words behind it. Otherwise returns NULL. */
static const char *value_of_on(char *const *words, char *const **rest) {
    const char *word = words[2];
    if (strcmp(words[1], "run") == 0 || word == NULL) return NULL;
    *rest = words + 3;
    if (strncmp(word, "--on=", 5) == 0) return word + 5;
    if (strcmp(word, "--on") != 0 || words[3] == NULL) return NULL;
    *rest = words + 4;
    return words[3];
}

bool elsewhere_is_meant(char *const *words) {
    char *const *rest;
    return value_of_on(words, &rest) != NULL;
}

/* Appends a word of a shell command, and a blank. */
static int put_word(struct cr_buffer *out, const char *word) {
    int rc = cr_shell_word_append(out, word);
    return rc == 0 ? cr_buffer_append(out, " ", 1) : rc;
}

/* Writes the shell command that a host executes: crun with `command` and the words of `rest`. The
 * host uses the crun at the path of this program or, if it has none there, the crun in its PATH. */
static int write_command(const char *command, char *const *rest, struct cr_buffer *out) {
    char path[4096];
    const char *folder = getenv("CRUN_JOBS_DIR");
    ssize_t n = readlink("/proc/self/exe", path, sizeof(path) - 1);
    path[n < 0 ? 0 : n] = '\0';
    int rc = cr_buffer_printf(out, "c=");
    if (rc == 0) rc = put_word(out, path);
    if (rc == 0) rc = cr_buffer_printf(out, "; [ -x \"$c\" ] || c=crun; ");
    if (rc == 0 && folder != NULL) rc = cr_buffer_printf(out, "export CRUN_JOBS_DIR=");
    if (rc == 0 && folder != NULL) rc = put_word(out, folder);
    if (rc == 0 && folder != NULL) rc = cr_buffer_printf(out, "; ");
    if (rc == 0) rc = cr_buffer_printf(out, "exec \"$c\" %s ", command);
    for (; *rest != NULL && rc == 0; rest++) rc = put_word(out, *rest);
    return rc == 0 ? cr_buffer_append(out, "", 1) : rc;
}

static int read_list(const char *on, struct hosts_list *list, struct cr_error *err) {
    CR_AUTO_FREE char *text = NULL;
    bool is_all = strcmp(on, HOSTS_ON_ALL) == 0;
    int rc = is_all ? elsewhere_read_cluster(&text, err) : 0;
    if (rc < 0) return rc;
    rc = is_all ? hosts_read_file(text, list, err) : hosts_read_list(on, list, err);
    if (rc == 0) rc = hosts_refuse_users(list, err);
    if (rc < 0) return cr_wrap(err, "--on%s", is_all ? "=" HOSTS_ON_ALL : "");
    return 0;
}

/* Executes the command on all hosts, one after the other. If there are several hosts, prints a line
 * with the host's name before each host's output. Returns 0, or the exit status of the first host
 * on which the command failed. */
static int run_on(const struct hosts_list *list, uint16_t port, const char *command,
                  bool gives_input) {
    int first = 0;
    struct cr_error no_key = {0};
    if (remote_prepare(&no_key) < 0) return complain(EXIT_FAILED, &no_key);
    for (size_t i = 0; i < list->count; i++) {
        const char *name = list->items[i].name;
        struct cr_error err = {0};
        char line[CR_HOST_MAX + 8];
        int n = snprintf(line, sizeof(line), "[%s]\n", name);
        if (list->count > 1) (void) !write(STDOUT_FILENO, line, (size_t) n);
        int status = remote_call(name, port, command, gives_input, &err);
        if (status < 0) report_line(err.text);
        if (first == 0) first = status < 0 ? EXIT_FAILED : status;
    }
    return first;
}

int elsewhere_main(char *const *words) {
    struct hosts_list list = {0};
    struct cr_buffer command = {0};
    struct cr_error err = {0};
    char *const *rest = NULL;
    uint16_t port = 0;
    const char *on = value_of_on(words, &rest);
    bool attaches = strcmp(words[1], "attach") == 0;
    int rc = elsewhere_port(&port, &err);
    if (rc == 0) rc = read_list(on, &list, &err);
    if (rc == 0 && list.count > 1 && attaches) {
        rc = cr_fail(&err, -EINVAL, "attach: --on has %zu hosts; give one", list.count);
    }
    if (rc == 0) rc = write_command(words[1], rest, &command);
    if (rc < 0 && err.code == 0) (void) cr_fail(&err, rc, "no memory left");
    int status = rc == 0 ? run_on(&list, port, command.data, attaches)
                         : complain(EXIT_USAGE, &err);
    cr_buffer_done(&command);
    hosts_list_done(&list);
    return status;
}
