/* Reads from the environment of a pod where its JobSet is: jobset_read() of jobset.h. */
#include "launcher/jobset/jobset.h"

#include "base/files/read_file.h"
#include "base/text/parse.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define ACCOUNT_FOLDER "/var/run/secrets/kubernetes.io/serviceaccount"
#define HTTPS_PORT     443

struct reader {
    cr_getenv_fn lookup;
    void *arg;
    struct cr_error *err;
};

/* Returns the value of a variable, or NULL if it is not set or empty. */
static const char *given(const struct reader *r, const char *name) {
    const char *value = r->lookup(r->arg, name);
    return value != NULL && value[0] != '\0' ? value : NULL;
}

/* Returns whether `text` is a name of Kubernetes: such a name needs no escapes in a URL. */
static bool is_name(const char *text) {
    size_t len = strlen(text);
    return len > 0 && len < JOBSET_NAME_MAX &&
           strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789-.") == len;
}

static int read_name(const struct reader *r, const char *variable, const char *field,
                     const char **out) {
    *out = given(r, variable);
    if (*out == NULL) {
        return cr_fail(r->err, -EINVAL, "CRUN_JOBSET_IN_PLACE=1 needs %s; set it in the pod from "
                       "the field %s", variable, field);
    }
    if (is_name(*out)) return 0;
    return cr_fail(r->err, -EINVAL, "%s: '%.100s' is no name of Kubernetes", variable, *out);
}

static int read_namespace(const struct reader *r, struct jobset_options *out) {
    char path[512];
    const char *text = given(r, "NAMESPACE");
    (void) snprintf(path, sizeof(path), "%s/namespace", out->folder);
    if (text != NULL) {
        (void) snprintf(out->space, sizeof(out->space), "%s", text);
    } else {
        ssize_t len = cr_read_file(path, out->space, sizeof(out->space));
        if (len < 0) {
            return cr_fail(r->err, -EINVAL, "cannot read the pod's namespace in '%s': %s; check "
                           "automountServiceAccountToken, or set NAMESPACE", path,
                           strerror((int) -len));
        }
        out->space[strcspn(out->space, "\r\n")] = '\0';
    }
    if (is_name(out->space)) return 0;
    return cr_fail(r->err, -EINVAL, "'%.100s' is no namespace of Kubernetes (%s)", out->space,
                   text != NULL ? "NAMESPACE" : path);
}

static int read_server(const struct reader *r, struct jobset_options *out) {
    const char *host = given(r, "KUBERNETES_SERVICE_HOST");
    const char *port = given(r, "KUBERNETES_SERVICE_PORT");
    int64_t number = HTTPS_PORT;
    if (host == NULL) {
        return cr_fail(r->err, -EINVAL, "CRUN_JOBSET_IN_PLACE=1 works in a pod of Kubernetes only: "
                       "KUBERNETES_SERVICE_HOST is not set");
    }
    if (strlen(host) >= sizeof(out->server.host) ||
        (port != NULL && cr_parse_i64(port, 1, UINT16_MAX, &number) < 0)) {
        return cr_fail(r->err, -EINVAL, "KUBERNETES_SERVICE_HOST and _PORT: '%.100s' and '%.20s' "
                       "are no address", host, port != NULL ? port : "");
    }
    (void) snprintf(out->server.host, sizeof(out->server.host), "%s", host);
    out->server.port = (uint16_t) number;
    return 0;
}

/* Reads the exit status for a restart. JobSet's own agent and KEP-467 give the variable different
 * names; both are taken. */
static int read_exit_status(const struct reader *r, struct jobset_options *out) {
    const char *name = "IN_PLACE_RESTART_EXIT_CODE";
    int64_t number = 1;
    if (given(r, name) == NULL) name = "RESTART_POD_IN_PLACE_EXIT_CODE";
    const char *text = given(r, name);
    if (text != NULL && cr_parse_i64(text, 1, 255, &number) < 0) {
        return cr_fail(r->err, -EINVAL, "%s: '%.50s' is not a number from 1 to 255", name, text);
    }
    out->exit_status = (int) number;
    return 0;
}

int jobset_read(cr_getenv_fn lookup, void *lookup_arg, struct jobset_options *out,
                struct cr_error *err) {
    struct reader r = {.lookup = lookup, .arg = lookup_arg, .err = err};
    *out = (struct jobset_options){0};
    const char *wanted = given(&r, "CRUN_JOBSET_IN_PLACE");
    if (wanted == NULL || strcmp(wanted, "0") == 0) return 0;
    if (strcmp(wanted, "1") != 0) {
        return cr_fail(err, -EINVAL, "CRUN_JOBSET_IN_PLACE: '%.50s' is neither 0 nor 1", wanted);
    }
    if (given(&r, "TORCHELASTIC_RUN_ID") != NULL) return 0;
    out->folder = given(&r, "CRUN_SERVICE_ACCOUNT");
    if (out->folder == NULL) out->folder = ACCOUNT_FOLDER;
    int rc = read_name(&r, "POD_NAME", "metadata.name", &out->pod);
    if (rc == 0) {
        rc = read_name(&r, "JOBSET_NAME",
                       "metadata.annotations['jobset.sigs.k8s.io/jobset-name']", &out->name);
    }
    if (rc == 0) rc = read_namespace(&r, out);
    if (rc == 0) rc = read_server(&r, out);
    return rc == 0 ? read_exit_status(&r, out) : rc;
}
