/* Writes verdict.json, the verdict for programs. docs/verdict.md describes each field. */
#ifndef AGENT_JSON_FILE_H
#define AGENT_JSON_FILE_H

#include "agent/evidence/evidence.h"
#include "agent/verdict/decision.h"
#include "agent/verdict/failures.h"

#define VERDICT_JSON_VERSION 1
#define VERDICT_JSON_NAME    "verdict.json"

/* What a verdict.json says. Texts must be valid while verdict_json_write() runs; a text is "" or
 * NULL if it is not known. */
struct verdict_json {
    const char *job, *title, *host;
    const char *outcome; /* a word of docs/verdict.md */
    const char *reason;  /* one line: why the job or the round ended */
    int64_t group_rank, round; /* -1 if the node was in no round */
    uint32_t restarts, max_restarts;
    const struct failures *failures;
    const struct verdict_worker *workers; /* [worker_count]: all workers of this node */
    size_t worker_count;
    const char *inspection; /* lines of text */
    const struct kernel_log *kernel;
    int64_t now_ns; /* wall clock */
};

/* Returns a word for how a worker failed: "exit", "signal", "oom", "hang" or "timer". */
const char *failure_kind(const struct verdict_worker *w, bool is_oom);

/* Returns a sentence that says what to do about a failure of this kind. */
const char *failure_advice(const char *kind, int64_t exit_code);

/* Writes the file at `path` in place of an old one; a reader sees either the old file or the new
 * one as a whole. Returns 0 or a negative errno. */
int verdict_json_write(const struct verdict_json *v, const char *path);

#endif
