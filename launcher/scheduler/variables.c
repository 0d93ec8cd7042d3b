/* Functions that read environment variables for the finders, and the port of a job. */
#include "base/text/parse.h"
#include "launcher/scheduler/find_internal.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define PORT_FIRST ((uint32_t) 15000)
#define PORT_COUNT ((uint32_t) 16384)

const char *fact_text(const struct scheduler_world *w, const char *name) {
    const char *text = w->lookup(w->arg, name);
    return text != NULL && text[0] != '\0' ? text : NULL;
}

int fact_number(const struct scheduler_world *w, const char *name, int64_t min, int64_t *out,
                struct cr_error *err) {
    const char *text = fact_text(w, name);
    if (text == NULL) return 0;
    if (cr_parse_i64(text, min, INT64_MAX, out) == 0) return 1;
    return cr_fail(err, -EINVAL,
                   "%s='%.100s' is not a whole number of at least %lld; correct it, or give "
                   "--scheduler=none and the options for the nodes",
                   name, text, (long long) min);
}

/* Reads a whole number of at least 1 into *out, and sets *from to the variable's name. A number
 * above UINT32_MAX is stored as UINT32_MAX, which later checks refuse, because it is too large for
 * them. */
static int read_u32(const struct scheduler_world *w, const char *name, uint32_t *out,
                    const char **from, struct cr_error *err) {
    int64_t number = 0;
    int rc = fact_number(w, name, 1, &number, err);
    if (rc <= 0) return rc;
    *out = number > UINT32_MAX ? UINT32_MAX : (uint32_t) number;
    *from = name;
    return 1;
}

int fact_nodes(const struct scheduler_world *w, const char *name, struct scheduler_facts *f,
               struct cr_error *err) {
    return read_u32(w, name, &f->nodes, &f->nodes_from, err);
}

int fact_workers(const struct scheduler_world *w, const char *name, struct scheduler_facts *f,
                 struct cr_error *err) {
    const char *text = fact_text(w, name);
    /* "0" means that the node has no GPU; the number of workers stays unknown */
    if (text != NULL && strcmp(text, "0") == 0) return 0;
    return read_u32(w, name, &f->workers, &f->workers_from, err);
}

int fact_rank(const struct scheduler_world *w, const char *name, struct scheduler_facts *f,
              struct cr_error *err) {
    int rc = fact_number(w, name, 0, &f->node_rank, err);
    if (rc > 0) f->rank_from = name;
    return rc;
}

void fact_copy(char *out, size_t cap, const char *text) { (void) snprintf(out, cap, "%s", text); }

/* The hash is FNV-1a with 32 bits (Fowler, Noll, Vo). */
uint16_t fact_port_of(const char *job_id) {
    uint32_t hash = UINT32_C(2166136261);
    for (const char *at = job_id; *at != '\0'; at++) {
        hash = (hash ^ (unsigned char) *at) * UINT32_C(16777619);
    }
    return (uint16_t) (PORT_FIRST + (hash ^ hash >> 16) % PORT_COUNT);
}
