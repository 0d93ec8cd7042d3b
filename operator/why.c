/* crun-agent why: shows where the workers of a job are, and which rank differs from the others. */
#include "operator/operator_internal.h"

#include "base/buffer.h"
#include "inspect/inspect.h"
#include "inspect/inspector.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LOOK_TIMEOUT_MS 10000 /* longest time in ms for looking into the processes of this host */

enum { JOB, JSON, HELP, OPTION_COUNT };

static const struct cr_option options[OPTION_COUNT] = {
    [JOB] = {.name = "job",
             .value_name = "ID",
             .help = "the job: what its nodes have as --rdzv-id (default: all workers found)"},
    [JSON] = {.name = "json", .help = "a line of JSON on stdout for each rank"},
    [HELP] = CR_OPTION_HELP,
};

/* Looks into the workers on this host. */
static int look_here(const char *run_id, struct inspect_row **rows, size_t *count,
                     struct cr_error *err) {
    char host[INSPECT_HOST_MAX] = "";
    int rc = inspect_find(run_id, rows, count, err);
    if (rc < 0) return rc;
    if (*count == 0) {
        free(*rows);
        return cr_fail(err, -ESRCH, "no worker%s%.200s was found on this host; give HOST:PORT of "
                                    "the job's coordinator, or become the user who runs the job",
                       run_id != NULL ? " of the job " : "", run_id != NULL ? run_id : "");
    }
    (void) gethostname(host, sizeof(host) - 1);
    for (size_t i = 0; i < *count; i++) memcpy((*rows)[i].host, host, sizeof(host));
    inspect_look(*rows, *count, LOOK_TIMEOUT_MS);
    return 0;
}

static int show(struct inspect_row *rows, size_t count, bool as_json) {
    struct cr_buffer text = {0};
    int rc = 0;
    if (!as_json) {
        rc = inspect_write_report(&text, rows, count, "  ");
    } else {
        struct inspect_group *groups = NULL;
        size_t group_count;
        rc = inspect_fold(rows, count, &groups, &group_count);
        free(groups);
        for (size_t i = 0; rc == 0 && i < count; i++) rc = inspect_row_write(&text, &rows[i]);
    }
    if (rc == 0) (void) fwrite(text.data, 1, text.len, stdout);
    cr_buffer_done(&text);
    return rc;
}

static int run(const struct cr_command *command, const struct cr_command_line *line) {
    struct cr_error err = {0};
    struct inspect_row *rows = NULL;
    size_t count = 0;
    int rc = look_here(line->value[JOB], &rows, &count, &err);
    if (rc == 0) {
        rc = show(rows, count, line->value[JSON] != NULL);
        free(rows);
        if (rc < 0) (void) cr_fail(&err, rc, "cannot write the rows: no memory left");
    }
    if (rc < 0) cr_complain(command->name, "%s", err.text);
    return rc < 0 ? CR_EXIT_FAILED : 0;
}

const struct cr_command operator_why = {
    .name = "crun-agent why",
    .summary = "show where each worker waits, and which rank differs",
    .arguments = "",
    .description =
        "Looks into the workers on this host, of crun or of torchrun, and shows for each rank: the "
        "state of its process, where it waits in the kernel, its stack, its Python stack if py-spy "
        "is in PATH, and the collective operation that it is in, if it uses crun's worker runtime. "
        "Equal ranks are shown once; the rank that differs from the majority comes first. A "
        "worker's main thread is stopped for some milliseconds.",
    .options = options,
    .option_count = OPTION_COUNT,
    .run = run,
};
