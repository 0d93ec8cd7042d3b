/* crun-agent key: derives the key of one role in one job, or of one user, from the secret of a
 * token file. */
#include "operator/operator_internal.h"

#include "base/buffer.h"
#include "remote/remote.h"

#include <stdio.h>
#include <string.h>

enum { JOB, ROLE, USER, TOKEN, HELP, OPTION_COUNT };

static const struct cr_option options[OPTION_COUNT] = {
    [JOB] = {.name = "job", .value_name = "ID",
             .help = "the job: what its nodes have as --rdzv-id; without it, an operator's key is "
                     "for all jobs"},
    [ROLE] = {.name = "role",
              .value_name = "WORD",
              .default_value = "member",
              .words = "member operator user",
              .help = "member: a node of the job; operator: status, notify, dump and why; user: "
                      "crun --on"},
    [USER] = {.name = "user", .value_name = "NAME", .help = "the user, with --role=user"},
    [TOKEN] = OPERATOR_OPTION_TOKEN,
    [HELP] = CR_OPTION_HELP,
};

/* Prints the key of a user, or the reason why there is none. Returns the exit status. */
static int write_user_key(const struct cr_command *command, const struct cr_command_line *line) {
    const char *file = operator_token_file(command, line), *name = line->value[USER];
    struct cr_buffer text = {0};
    struct cr_error err = {0};
    if (name == NULL) {
        return cr_complain_usage(command->name, "--user is missing: whose key is meant?");
    }
    if (file == NULL) {
        return cr_complain_usage(command->name, "there is no token file; give --rdzv-token-file");
    }
    int rc = remote_write_key(file, name, &text, &err);
    if (rc == 0) (void) fwrite(text.data, 1, text.len, stdout);
    else cr_complain(command->name, "%s", err.text);
    cr_buffer_done(&text);
    return rc < 0 ? CR_EXIT_FAILED : 0;
}

static int run(const struct cr_command *command, const struct cr_command_line *line) {
    struct cr_buffer text = {0};
    struct cr_error err = {0};
    const char *job = line->value[JOB] != NULL ? line->value[JOB] : "", *role = line->value[ROLE];
    bool is_operator = strcmp(role, "operator") == 0;
    if (strcmp(role, "user") == 0) return write_user_key(command, line);
    if (!is_operator && strcmp(role, "member") != 0) {
        return cr_complain_usage(command->name,
                                 "--role: '%s' is not known; give member, operator or user", role);
    }
    if (!is_operator && job[0] == '\0') {
        return cr_complain_usage(command->name, "--job is missing: which job is meant?");
    }
    int status = operator_authenticate(command, line);
    if (status != 0) return status;
    int rc = rendezvous_derive_key(is_operator, job, &text, &err);
    if (rc == 0) (void) fwrite(text.data, 1, text.len, stdout);
    else cr_complain(command->name, "%s", err.text);
    cr_buffer_done(&text);
    return rc < 0 ? CR_EXIT_FAILED : 0;
}

const struct cr_command operator_key = {
    .name = "crun-agent key",
    .summary = "derive the key of one job from a secret",
    .arguments = "",
    .description =
        "Prints a line for a token file: the key of one role in one job, derived from the newest "
        "secret of the token file. Whoever has it, but not the secret, can do nothing to other "
        "jobs, and nothing in another role. With --role=user it is the key of one user.",
    .options = options,
    .option_count = OPTION_COUNT,
    .run = run,
};
