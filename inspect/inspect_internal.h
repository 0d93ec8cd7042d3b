/* What the files of inspect/ share, and no other room uses. */
#ifndef INSPECT_INTERNAL_H
#define INSPECT_INTERNAL_H

#include "inspect/inspect.h"

#include <sys/types.h>

/* ---- fold.c ---- */

/* Returns the word of the row that inspect_fold() compares at `level`: level 0 is the operation,
 * the levels below are the functions of the stack, from the outermost one. Stores the length of the
 * word in *len; it is 0 if the row has fewer levels. */
const char *inspect_word(struct inspect_row *row, size_t level, size_t *len);

/* ---- looking into one process; each function fills in fields of the row for row->pid ---- */

/* process.c: fills in state, program and kernel. Returns 0, or -ESRCH if there is no such
 * process. */
int inspect_process(struct inspect_row *row);
/* operation.c: fills in operation if the process uses libcrunrt: requests a flight record with the
 * dump signal, and reads the record. */
void inspect_operation(struct inspect_row *row);
/* native_stack.c: fills in native. If the stack cannot be read, appends the reason to the note. */
void inspect_native_stack(struct inspect_row *row);
/* python_stack.c: fills in python if the process runs Python. If the stack cannot be read, appends
 * the reason to the note. */
void inspect_python_stack(struct inspect_row *row);

/* find.c: copies the value of a variable in the environment that the process was started with, at
 * most cap - 1 bytes. Returns false, and makes `out` "", if the process has no such variable or its
 * environment cannot be read. */
bool inspect_variable(int64_t pid, const char *name, char *out, size_t cap);
/* find.c: returns the pid of the process that does the work of the worker `pid`. This is the worker
 * itself; or, if the worker is a shell or another program that only waits for its child, the child,
 * or the child's child. */
int64_t inspect_working_process(int64_t pid);

/* Appends a reason to row->note. */
void inspect_note(struct inspect_row *row, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* Appends a function to a stack in `out`, which has room for INSPECT_STACK_MAX bytes. Bytes that
 * are not printable become \xNN. Returns false, and appends nothing, if there is no room. */
bool inspect_add_function(char *out, const char *name);

#endif
