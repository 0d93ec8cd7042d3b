/* Rows of an inspection as lines of JSON. */
#include "inspect/inspect.h"

#include "base/text/text.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

void inspect_row_init(struct inspect_row *row, int64_t pid) {
    memset(row, 0, sizeof(*row));
    row->rank = row->local_rank = -1;
    row->pid = pid;
    row->state = '?';
}

/* ---- writing ---- */

static json_t *row_object(const struct inspect_row *row) {
    const char *job = row->job[0] != '\0' ? row->job : NULL; /* NULL: the object has no "job" */
    return json_pack("{s:s*, s:I, s:I, s:I, s:s, s:s#, s:s, s:s, s:s, s:s, s:s, s:s}", "job", job,
                     "rank", (json_int_t) row->rank, "local_rank", (json_int_t) row->local_rank,
                     "pid", (json_int_t) row->pid, "host", row->host, "state", &row->state, 1,
                     "program", row->program, "kernel", row->kernel, "operation", row->operation,
                     "python", row->python, "native", row->native, "note", row->note);
}

/* Removes the outer half of a stack, or a little more: the cut is between two functions, so that no
 * function and no character of several bytes is cut. */
static void halve(char *stack) {
    size_t len = strlen(stack);
    if (len == 0) return;
    const size_t mark = strlen(INSPECT_CALLED_BY);
    for (size_t i = len / 2; i > 0; i--) {
        if (strncmp(stack + i, INSPECT_CALLED_BY, mark) == 0) {
            stack[i] = '\0';
            return;
        }
    }
    stack[0] = '\0';
}

int inspect_row_write(struct cr_buffer *out, const struct inspect_row *row) {
    struct inspect_row r = *row;
    for (;;) {
        json_auto_t *object = row_object(&r);
        char *text = object != NULL ? json_dumps(object, JSON_COMPACT) : NULL;
        if (text == NULL) return -ENOMEM;
        size_t len = strlen(text);
        /* JSON writes some characters, such as quotes, with two bytes or more, so the text of a row
         * can exceed INSPECT_JSON_MAX. In that case the stacks are shortened until it fits. */
        bool fits = len < INSPECT_JSON_MAX || (r.native[0] == '\0' && r.python[0] == '\0');
        int rc = fits ? cr_buffer_printf(out, "%s\n", text) : 0;
        free(text);
        if (fits) return rc;
        halve(r.native);
        if (strlen(r.python) > INSPECT_STACK_MAX / 2) halve(r.python);
    }
}

/* ---- reading ---- */

static void take_text(const json_t *object, const char *name, char *out, size_t cap) {
    const json_t *text = json_object_get(object, name);
    out[0] = '\0';
    if (!json_is_string(text)) return;
    (void) cr_text_copy(out, cap, json_string_value(text), json_string_length(text));
}

static int64_t take_number(const json_t *object, const char *name) {
    const json_t *n = json_object_get(object, name);
    return json_is_integer(n) ? (int64_t) json_integer_value(n) : -1;
}

int inspect_row_read(struct inspect_row *row, const char *line, size_t len) {
    json_error_t error;
    json_auto_t *object = json_loadb(line, len, 0, &error);
    if (object == NULL) {
        return json_error_code(&error) == json_error_out_of_memory ? -ENOMEM : -EINVAL;
    }
    if (!json_is_object(object)) return -EINVAL;
    inspect_row_init(row, take_number(object, "pid"));
    row->rank = take_number(object, "rank");
    row->local_rank = take_number(object, "local_rank");
    const char *state = json_string_value(json_object_get(object, "state"));
    if (state != NULL && cr_text_printable_len(state, 1) == 1) row->state = state[0];
    take_text(object, "job", row->job, sizeof(row->job));
    take_text(object, "host", row->host, sizeof(row->host));
    take_text(object, "program", row->program, sizeof(row->program));
    take_text(object, "kernel", row->kernel, sizeof(row->kernel));
    take_text(object, "operation", row->operation, sizeof(row->operation));
    take_text(object, "python", row->python, sizeof(row->python));
    take_text(object, "native", row->native, sizeof(row->native));
    take_text(object, "note", row->note, sizeof(row->note));
    return row->pid > 0 ? 0 : -EINVAL;
}
