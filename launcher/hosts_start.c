/* Starts a job on several hosts: see hosts_start.h. */
#include "launcher/hosts_start.h"

#include "base/files/read_file.h"
#include "base/memory.h"
#include "launcher/elsewhere.h"
#include "launcher/options/options.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#define SECRET_TEXT  65               /* bytes of a random secret as text, with its NUL */

/* Reads the hostfile: the file of --hostfile or, with --on=all, the file that lists the cluster's
 * hosts. Sets *out to its text, which the caller frees; sets *out to NULL if neither option is
 * given. Returns 0; or a negative errno, and sets err. */
static int read_hostfile(const struct options *options, char **out, struct cr_error *err) {
    const char *path = options->value[OPTION_HOSTFILE], *on = options->value[OPTION_ON];
    *out = NULL;
    if (on != NULL && strcmp(on, HOSTS_ON_ALL) == 0) return elsewhere_read_cluster(out, err);
    return path == NULL ? 0 : elsewhere_read_hosts("--hostfile", path, out, err);
}

/* Writes a new secret to `out`: 32 random bytes as a line of hexadecimal digits. Returns 0; or a
 * negative errno, and sets err. */
static int draw_secret(char out[SECRET_TEXT], struct cr_error *err) {
    unsigned char random[32];
    if (getrandom(random, sizeof(random), 0) != (ssize_t) sizeof(random)) {
        return cr_fail_errno(err, "cannot draw a secret for the job");
    }
    for (size_t i = 0; i < sizeof(random); i++) {
        (void) snprintf(out + 2 * i, SECRET_TEXT - 2 * i, "%02x", random[i]);
    }
    return 0;
}

/* Sets the job's secret to the text of the user's token file. If the user gives neither a token
 * file nor an endpoint, draws a new secret, so that nobody else can join the job, and stores the
 * secret's text in `drawn`. If crun is built without libsodium, no secret is
 * drawn; rendezvous/secure/primitives.c makes the same check. */
static int set_secret(const struct options *options, struct hosts_job *job, char **file,
                      char drawn[SECRET_TEXT], struct cr_error *err) {
    const char *path = options->value[OPTION_RDZV_TOKEN_FILE];
    if (path == NULL || path[0] == '\0') path = getenv("CRUN_RDZV_TOKEN_FILE");
    if (path != NULL && path[0] != '\0') {
        *file = malloc(HOSTS_SECRET_MAX);
        ssize_t n = *file == NULL ? -ENOMEM : cr_read_file(path, *file, HOSTS_SECRET_MAX);
        if (n < 0) {
            return cr_fail(err, (int) n, "cannot use the token file '%.300s': %s", path,
                           strerror((int) -n));
        }
        job->secret = *file;
        job->secret_len = (size_t) n;
        return 0;
    }
#if __has_include(<sodium.h>)
    bool wants_none = strstr(job->conf, "auth=off") != NULL;
    if (wants_none || job->user_meets) return 0;
    int rc = draw_secret(drawn, err);
    job->secret = drawn;
    job->secret_len = strlen(drawn);
    return rc;
#else
    (void) drawn;
    return 0;
#endif
}

int hosts_start(const struct options *options, bool *is_usage, struct cr_error *err) {
    CR_AUTO_FREE char *hostfile = NULL, *secret = NULL;
    char drawn[SECRET_TEXT] = "";
    struct hosts_choice choice = {0};
    unsigned char random[8] = {0};
    char run_id[32];
    *is_usage = true;
    int rc = read_hostfile(options, &hostfile, err);
    if (rc < 0) return rc;
    (void) !getrandom(random, sizeof(random), 0);
    (void) snprintf(run_id, sizeof(run_id), "hosts-%02x%02x%02x%02x%02x%02x%02x%02x", random[0],
                    random[1], random[2], random[3], random[4], random[5], random[6], random[7]);
    rc = hosts_describe(options, hostfile, environ, run_id, &choice, err);
    if (rc == 0) rc = set_secret(options, &choice.job, &secret, drawn, err);
    if (rc == 0) {
        *is_usage = false;
        choice.job.caller = &elsewhere_caller;
        rc = hosts_run(&choice.job, err);
    }
    hosts_choice_done(&choice);
    return rc;
}
