/* Parses requests of PMI-1 and formats the answers: see request_internal.h. */
#include "launcher/pmi/request_internal.h"

#include "base/memory.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define KVS "crun" /* the name of the only key space */

/* Copies to `out` the value of the field NAME=VALUE in the line, or "" if the line has no such
 * field. Returns false if the value does not fit. */
static bool read_field(const char *line, const char *name, char *out, size_t cap) {
    size_t n = strlen(name);
    out[0] = '\0';
    for (const char *at = line; *at != '\0';) {
        size_t len = strcspn(at, " ");
        if (len > n && strncmp(at, name, n) == 0 && at[n] == '=') {
            if (len - n - 1 >= cap) return false;
            (void) snprintf(out, cap, "%.*s", (int) (len - n - 1), at + n + 1);
            return true;
        }
        at += len;
        at += strspn(at, " ");
    }
    return true;
}

static int answer_put(const char *line, struct pmi_request *out, struct cr_buffer *answer) {
    bool fits = read_field(line, "key", out->key, sizeof(out->key)) &&
                read_field(line, "value", out->value, sizeof(out->value));
    if (!fits || out->key[0] == '\0') {
        return cr_buffer_printf(answer, "cmd=put_result rc=-1 msg=too_long\n");
    }
    out->action = PMI_PUT;
    return cr_buffer_printf(answer, "cmd=put_result rc=0 msg=success\n");
}

static int answer_get(const char *line, struct pmi_request *out, struct cr_buffer *answer) {
    if (!read_field(line, "key", out->key, sizeof(out->key)) || out->key[0] == '\0') {
        return cr_buffer_printf(answer, "cmd=get_result rc=-1 msg=no_such_key value=unknown\n");
    }
    out->action = PMI_GET;
    return 0;
}

/* If `name` is a request for a fact about the job, appends the answer and returns 1. Returns 0 if
 * it is another request; or -ENOMEM. */
static int answer_fact(const char *name, const struct pmi_place *place, struct cr_buffer *answer) {
    int rc;
    if (strcmp(name, "get_maxes") == 0) {
        rc = cr_buffer_printf(answer, "cmd=maxes rc=0 kvsname_max=%d keylen_max=%d vallen_max=%d\n",
                              PMI_NAME_MAX, PMI_KEY_MAX, PMI_VALUE_MAX / 2);
    } else if (strcmp(name, "get_appnum") == 0) {
        rc = cr_buffer_printf(answer, "cmd=appnum rc=0 appnum=0\n");
    } else if (strcmp(name, "get_my_kvsname") == 0) {
        rc = cr_buffer_printf(answer, "cmd=my_kvsname rc=0 kvsname=" KVS "\n");
    } else if (strcmp(name, "get_universe_size") == 0) {
        rc = cr_buffer_printf(answer, "cmd=universe_size rc=0 size=%" PRIu32 "\n", place->size);
    } else {
        return 0;
    }
    return rc < 0 ? rc : 1;
}

int pmi_read_request(const char *line, const struct pmi_place *place, struct pmi_request *out,
                     struct cr_buffer *answer) {
    char name[64];
    *out = (struct pmi_request){.action = PMI_ANSWER};
    (void) read_field(line, "cmd", name, sizeof(name));
    int rc = answer_fact(name, place, answer);
    if (rc != 0) return rc < 0 ? rc : 0;
    if (strcmp(name, "put") == 0) return answer_put(line, out, answer);
    if (strcmp(name, "get") == 0) return answer_get(line, out, answer);
    if (strcmp(name, "init") == 0) {
        out->is_init = true;
        return cr_buffer_printf(answer,
                                "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n");
    }
    if (strcmp(name, "barrier_in") == 0) {
        out->action = PMI_BARRIER;
        return cr_buffer_printf(answer, "cmd=barrier_out rc=0\n");
    }
    if (strcmp(name, "finalize") == 0) {
        out->action = PMI_END;
        return cr_buffer_printf(answer, "cmd=finalize_ack rc=0\n");
    }
    if (strcmp(name, "abort") == 0) {
        out->action = PMI_ABORT;
        return 0;
    }
    return cr_buffer_printf(answer, "cmd=%.40s rc=-1 msg=not_supported\n", name);
}

int pmi_write_value(const char *key, const char *value, struct cr_buffer *answer) {
    if (value == NULL) {
        return cr_buffer_printf(answer, "cmd=get_result rc=-1 msg=key_%s_not_found value=unknown\n",
                                key);
    }
    return cr_buffer_printf(answer, "cmd=get_result rc=0 msg=success value=%s\n", value);
}

int pmi_write_mapping(const uint32_t *workers, uint32_t nodes, struct cr_buffer *out) {
    int rc = cr_buffer_printf(out, "(vector");
    for (uint32_t i = 0, run; i < nodes && rc == 0; i += run) {
        for (run = 1; i + run < nodes && workers[i + run] == workers[i];) run++;
        rc = cr_buffer_printf(out, ",(%" PRIu32 ",%" PRIu32 ",%" PRIu32 ")", i, run, workers[i]);
    }
    return rc == 0 ? cr_buffer_printf(out, ")") : rc;
}
