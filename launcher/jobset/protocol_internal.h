/* Decides what a pod does in JobSet's in-place restarts (jobset.h). Pure: answers of the API server
 * go in, calls and orders come out. */
#ifndef LAUNCHER_JOBSET_PROTOCOL_INTERNAL_H
#define LAUNCHER_JOBSET_PROTOCOL_INTERNAL_H

#include "launcher/jobset/jobset.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define JOBSET_PATH_MAX ((size_t) 1024)
#define JOBSET_BODY_MAX ((size_t) 160)
/* time in s after which the API server ends a watch; client.c begins the next one */
#define JOBSET_WATCH_S 240

/* The calls to the API server. One is under way at a time. */
enum jobset_call {
    JOBSET_READ,     /* gets the JobSet */
    JOBSET_ANNOUNCE, /* writes this pod's attempt into its annotation */
    JOBSET_WATCH,    /* a stream of the JobSet's changes, one JSON object a line */
    JOBSET_NOTHING,  /* the pod needs no further call */
};

/* All fields are private. The caller sets all bytes to 0. */
struct jobset_protocol {
    char version[64];  /* newest resourceVersion of the JobSet; "" if it has to be read */
    bool has_attempt;
    int64_t attempt;   /* this pod's attempt, valid if has_attempt */
    int64_t current;   /* the JobSet's current attempt; valid if has_current */
    int64_t previous;  /* the JobSet's previous attempt; -1 if it has none */
    bool has_current;
    bool is_announced; /* true if the annotation has this pod's attempt */
    bool is_bypassed;  /* true if the JobSet does not restart in place */
    bool is_started;   /* true if JOBSET_START was given */
    bool is_over;      /* true if JOBSET_RESTART was given */
    uint32_t failures; /* failed calls since the last good answer */
};

/* Returns the call that is due. */
enum jobset_call jobset_next(const struct jobset_protocol *p);

/* Takes the answer to READ, or one line of the answer to WATCH. Returns 0; -ESTALE if the API
 * server no longer has the changes since the version of the watch, so that the JobSet is read
 * again; or -EPROTO, and sets err, if the text is not what the API server should send. */
int jobset_take(struct jobset_protocol *p, enum jobset_call call, const char *text, size_t len,
                struct cr_error *err);

/* Call this when the API server has taken the annotation. */
void jobset_announced(struct jobset_protocol *p);

/* Call this when a call has ended. `http_status` is 0 if there was no answer. `is_good` is true if
 * the call has done what it should. `random` is any number. Returns how long to wait, in ms, before
 * the next call. */
int64_t jobset_ended(struct jobset_protocol *p, enum jobset_call call, int http_status,
                     bool is_good, uint32_t random);

/* Returns true, and stores the order, if one is due. Call this after jobset_take() and
 * jobset_announced(). */
bool jobset_order(struct jobset_protocol *p, enum jobset_order *order);

/* Writes the path of a call to `out`. Names in Kubernetes need no escapes in a URL. */
void jobset_path(const struct jobset_protocol *p, const struct jobset_options *o,
                 enum jobset_call call, char out[JOBSET_PATH_MAX]);

/* Writes the body of ANNOUNCE, a merge patch, to `out`. */
void jobset_patch(const struct jobset_protocol *p, char out[JOBSET_BODY_MAX]);

#endif
