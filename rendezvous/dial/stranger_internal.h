/* Recognises programs that are not a coordinator, from what they send. Pure. */
#ifndef RENDEZVOUS_STRANGER_INTERNAL_H
#define RENDEZVOUS_STRANGER_INTERNAL_H

#include "base/buffer.h"

#include <stdbool.h>
#include <stddef.h>

/* What the first bytes from the other end of a connection to a coordinator mean. */
enum stranger_first {
    STRANGER_UNDECIDED, /* more bytes are needed */
    STRANGER_WELCOME,   /* a coordinator accepts this node */
    STRANGER_REFUSED,   /* a coordinator refuses this node */
    STRANGER_FOREIGN,   /* the other end is another program */
};
enum stranger_first stranger_first(const char *data, size_t len);

/* Appends a question for a program that has not answered the greeting of a node. A TCPStore takes
 * it for VALIDATE and PING, and answers with the 4 bytes of the PING; a server of a text protocol,
 * such as HTTP, takes it for a malformed line, and answers with an error. Returns 0 or -ENOMEM. */
int stranger_ask(struct cr_buffer *out);
/* Appends a question for a TCPStore that has answered stranger_ask(): whether it has torchrun's
 * state of the job `run_id`. stranger_has_torchrun() reads the answer, which is one byte. If is_old
 * is true, asks as a client of torch 2.0 or earlier does; this needs a new connection, because a
 * store of that age closes the connection when it gets the bytes of stranger_ask(). Returns 0 or
 * -ENOMEM. */
int stranger_ask_for_torchrun(struct cr_buffer *out, const char *run_id, bool is_old);
/* Returns whether this can be a TCPStore's answer to stranger_ask_for_torchrun(). */
bool stranger_is_check_answer(const char *answer, size_t len);
bool stranger_has_torchrun(const char *answer, size_t len);

/* Appends a question, for a new connection, that only the stores of crun answer: the request for
 * their statistics. Returns 0 or -ENOMEM. */
int stranger_ask_for_crun(struct cr_buffer *out);

/* Returns whether the answer to stranger_ask() comes from a TCPStore. */
bool stranger_is_store(const char *data, size_t len);
/* Returns a text that says what the other end is; it completes the phrase "it is not a crun: …". */
const char *stranger_name(const char *data, size_t len);

#endif
