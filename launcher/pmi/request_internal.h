/* The requests and answers of PMI-1 as text. Pure. */
#ifndef LAUNCHER_PMI_REQUEST_H
#define LAUNCHER_PMI_REQUEST_H

#include "base/buffer.h"

#include <stdbool.h>
#include <stdint.h>

#define PMI_LINE_MAX  4096 /* longest line of a request in bytes, with its newline */
#define PMI_NAME_MAX  256  /* bytes of the name of the key space, with its NUL */
#define PMI_KEY_MAX   256  /* bytes of a key, with its NUL */
#define PMI_VALUE_MAX 2048 /* bytes of a value, with its NUL */

/* What a worker is. */
struct pmi_place {
    uint32_t rank, size;
};

/* What the helper must do for a request. */
enum pmi_action {
    PMI_ANSWER,  /* write the answer */
    PMI_PUT,     /* store the value under the key, then write the answer */
    PMI_GET,     /* get the key from the store, then write the text that pmi_write_value()
                  * appends */
    PMI_BARRIER, /* wait for all workers, then write the answer */
    PMI_END,     /* write the answer; after that, the helper ends */
    PMI_ABORT    /* the program is about to end itself with an error; the helper ends without an
                  * answer */
};

struct pmi_request {
    enum pmi_action action;
    bool is_init; /* true if the request is `init`, with which each program begins */
    char key[PMI_KEY_MAX], value[PMI_VALUE_MAX];
};

/* Parses a request, which is a line without its newline, into *out. Appends the answer to `answer`,
 * unless the action is PMI_GET or PMI_ABORT. If the request is unknown, or a key or value is too
 * long, the answer contains rc=-1. Returns 0 or -ENOMEM. */
int pmi_read_request(const char *line, const struct pmi_place *place, struct pmi_request *out,
                     struct cr_buffer *answer);

/* Appends the answer to a request PMI_GET. `value` is NULL if the store does not have the key.
 * Returns 0 or -ENOMEM. */
int pmi_write_value(const char *key, const char *value, struct cr_buffer *answer);

/* Appends the value of the key PMI_process_mapping, which says on which node each rank is.
 * workers[i] is the number of workers of the node with group rank i. Returns 0 or -ENOMEM. */
int pmi_write_mapping(const uint32_t *workers, uint32_t nodes, struct cr_buffer *out);

#endif
