/* The requests and answers of PMI-1 as text. Pure. */
#ifndef LAUNCHER_PMI_REQUEST_H
#define LAUNCHER_PMI_REQUEST_H

#include "base/buffer.h"

#include <stdbool.h>
#include <stdint.h>

#define PMI_LINE_MAX  4096 /* longest line of a program, in bytes, with its newline */
#define PMI_NAME_MAX  256  /* bytes of the name of the key space, with its NUL */
#define PMI_KEY_MAX   256  /* bytes of a key, with its NUL */
#define PMI_VALUE_MAX 2048 /* bytes of a value, with its NUL */

/* What a worker is. */
struct pmi_place {
    uint32_t rank, size;
};

/* What the helper has to do for a request. */
enum pmi_action {
    PMI_ANSWER,  /* write the answer */
    PMI_PUT,     /* store the value under the key, then write the answer */
    PMI_GET,     /* get the key from the store, then write what pmi_write_value() yields */
    PMI_BARRIER, /* wait for all workers, then write the answer */
    PMI_END,     /* write the answer; after that, the helper ends */
    PMI_ABORT    /* the program is about to end itself; the helper ends without an answer */
};

struct pmi_request {
    enum pmi_action action;
    bool is_init; /* true if the request is init, with which a program begins to use PMI */
    char key[PMI_KEY_MAX], value[PMI_VALUE_MAX];
};

/* Reads a request, a line without its newline, and sets *out. Appends the answer to `answer`,
 * unless the action is PMI_GET or PMI_ABORT. The answer to an unknown request, or to a key or value
 * that is too long, has rc=-1. Returns 0 or -ENOMEM. */
int pmi_read_request(const char *line, const struct pmi_place *place, struct pmi_request *out,
                     struct cr_buffer *answer);

/* Appends the answer to PMI_GET. `value` is NULL if there is no such key. Returns 0 or -ENOMEM. */
int pmi_write_value(const char *key, const char *value, struct cr_buffer *answer);

/* Appends the value of the key PMI_process_mapping: which ranks are on which node. workers[i] is
 * the number of workers of the node with group rank i. Returns 0 or -ENOMEM. */
int pmi_write_mapping(const uint32_t *workers, uint32_t nodes, struct cr_buffer *out);

#endif
