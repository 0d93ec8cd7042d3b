/* Writes verdict.json, the verdict for programs. docs/verdict.md describes each field. */
#ifndef AGENT_JSON_FILE_H
#define AGENT_JSON_FILE_H

#include "agent/evidence/evidence.h"
#include "agent/verdict/decision.h"
#include "agent/verdict/failures.h"
#include "base/buffer.h"

#define VERDICT_JSON_VERSION 1
#define VERDICT_JSON_NAME    "verdict.json"

/* What a verdict.json says. Texts must be valid while verdict_json_text() runs; a text is "" or
 * NULL if it is not known. */
struct verdict_json {
    const char *job, *title, *host;
    const char *outcome; /* the job's outcome, a word of docs/verdict.md */
    const char *reason;  /* one line: why the job or the round ended */
    int64_t group_rank, round; /* -1 if the node was in no round */
    uint32_t restarts, max_restarts;
    const struct failures *failures;
    const struct verdict_worker *workers; /* [worker_count]: the workers of this node that did not
                                           * end well, in the order of local ranks */
    size_t worker_count;
    const char *inspection; /* lines of text that say where the workers hung */
    const struct kernel_log *kernel;
    int64_t now_ns; /* wall clock */
};

/* Returns a word for how a worker failed: "exit", "signal", "oom", "hang" or "timer". */
const char *failure_kind(const struct verdict_worker *w, bool is_oom);

/* Returns a sentence that says what to do about a failure of this kind. */
const char *failure_advice(const char *kind, int64_t exit_code);

/* Appends the text of the file to *out. Returns 0 or -ENOMEM. */
int verdict_json_text(const struct verdict_json *v, struct cr_buffer *out);

/* Writes the text into the file at `path` in place of an old one; a reader sees either the old file
 * or the new one as a whole. Returns 0 or a negative errno. */
int verdict_json_save(const struct cr_buffer *text, const char *path);

#endif
