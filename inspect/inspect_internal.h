/* Functions that only the files of inspect/ use. */
#ifndef INSPECT_INTERNAL_H
#define INSPECT_INTERNAL_H

#include "inspect/inspect.h"

#include <sys/types.h>

/* ---- fold.c ---- */

/* Returns the word of the row that inspect_fold() compares at `level`. The word at level 0 is the
 * operation; the words at the next levels are the functions of the stack, from the outermost one
 * inwards. Stores the length of the word in *len. If the row has no word at `level`, returns "" and
 * stores 0. */
const char *inspect_word(struct inspect_row *row, size_t level, size_t *len);

/* ---- looking into one process; each function fills in fields of the row for row->pid ---- */

/* process.c: fills in state, program and kernel. Returns 0, or -ESRCH if there is no such
 * process. */
int inspect_process(struct inspect_row *row);
/* process.c: returns whether the process has a handler for the signal. Without a handler, most
 * signals end a process. */
bool inspect_catches(int64_t pid, int signum);
/* operation.c: if the process uses libcrunrt, sends it the dump signal, reads the flight record
 * that the process writes, and fills in `operation`. */
void inspect_operation(struct inspect_row *row);
/* operation.c: fills in row->operation. `operation` is the name of the operation that the process
 * is in or, if is_running is false, of the last one that has ended; `number` is its number in
 * `group`. A text that is NULL becomes "?". */
void inspect_set_operation(struct inspect_row *row, bool is_running, const char *operation,
                           int64_t number, const char *group);
/* torch.c: fills in `operation` if the process runs torch's worker server. If the process has
 * torch's dump pipe, also makes ProcessGroupNCCL write its flight record to a file. */
void inspect_torch(struct inspect_row *row);
/* torch.c: stores the path of the process's dump pipe, the pipe of ProcessGroupNCCL, in `out`.
 * Returns false if the environment of the process names no such pipe. */
bool inspect_dump_pipe(int64_t pid, char *out, size_t cap);
/* torch.c: fills in `python` if the process runs torch's worker server. Returns whether row->python
 * is filled in. */
bool inspect_torch_python(struct inspect_row *row);
/* faulthandler.c: fills in `python` with the stack of the main thread. `text` has the stacks of all
 * threads as Python's faulthandler writes them: a section for each thread, with an empty line
 * between two sections. */
void inspect_take_faulthandler(struct inspect_row *row, const char *text);
/* faulthandler.c: if the process has registered Python's faulthandler and says for which signal,
 * sends this signal, and fills in `python` or adds a note. Returns whether the signal was sent. */
bool inspect_faulthandler(struct inspect_row *row);
/* native_stack.c: fills in native. If the stack cannot be read, appends the reason to the note. */
void inspect_native_stack(struct inspect_row *row);
/* python_stack.c: fills in python if the process runs Python. If the stack cannot be read, appends
 * the reason to the note. */
void inspect_python_stack(struct inspect_row *row);

/* find.c: copies to `out` the value that the variable `name` had in the environment of the process
 * at its start, at most cap - 1 bytes. If the process has no such variable or its environment
 * cannot be read, stores "" and returns false. */
bool inspect_variable(int64_t pid, const char *name, char *out, size_t cap);
/* find.c: returns the pid of the process that does the work of the worker `pid`. If the worker is a
 * shell or another program that only waits for its child, this is the child (or the child's child,
 * if the child waits, too); otherwise it is the worker itself. */
int64_t inspect_working_process(int64_t pid);

/* Appends a reason to row->note. */
void inspect_note(struct inspect_row *row, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* Appends a function to the stack in `out`, a buffer of INSPECT_STACK_MAX bytes. Bytes that are not
 * printable become \xNN. Returns true; or, if the function does not fit into the buffer, false, and
 * appends nothing. */
bool inspect_add_function(char *out, const char *name);

#endif
