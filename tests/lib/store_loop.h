/* One client on one loop, and what its callbacks say, for the tests of the store's asynchronous client. */
#ifndef TESTS_STORE_LOOP_H
#define TESTS_STORE_LOOP_H

#include "store/client_async.h"

#include <check.h>
#include <stdio.h>
#include <string.h>

#define LONG_MS 30000
#define B(text) STORE_BYTES(text)

static uv_loop_t loop;
static struct store_async *client;
static int turns;   /* callbacks so far */
static int running; /* the loop, until something is said */

/* What a callback said. */
struct said {
    int times, status;
    int64_t number;
    char value[64]; /* of a list: the values, a comma behind each */
    size_t list_count;
    char text[CR_ERROR_TEXT_MAX];
    int turn; /* which callback of the test this was */
};

static inline void note_list(struct said *s, const struct store_list *list) {
    s->list_count = list->count;
    size_t at = 0;
    for (size_t i = 0; i < list->count && at < sizeof(s->value); i++)
        at += (size_t) snprintf(s->value + at, sizeof(s->value) - at, "%.*s,",
                                (int) list->items[i].len, (const char *) list->items[i].data);
}

static inline void on_said(void *arg, int status, struct store_async_result *r,
                           const struct cr_error *err) {
    struct said *s = arg;
    s->times++;
    s->turn = ++turns;
    s->status = status;
    s->number = r->number;
    (void) snprintf(s->value, sizeof(s->value), "%.*s", (int) r->value.len,
                    r->value.data != NULL ? (const char *) r->value.data : "");
    note_list(s, &r->list);
    (void) snprintf(s->text, sizeof(s->text), "%s", err != NULL ? err->text : "");
    if (running) uv_stop(&loop);
}

static inline void on_closed(void *arg) { *(int *) arg += 1; }

static inline void run_until(const struct said *s) {
    running = 1;
    while (s->times == 0) {
        int more = uv_run(&loop, UV_RUN_DEFAULT);
        ck_assert_msg(more != 0 || s->times > 0, "the loop ended and nothing was said");
    }
    running = 0;
}

static inline int open_client(uint16_t port, enum store_protocol protocol, int64_t timeout_ms,
                              struct said *s) {
    *s = (struct said){0};
    int rc =
        store_async_open(&loop, "127.0.0.1", port, protocol, timeout_ms, on_said, s, &client, NULL);
    ck_assert_int_eq(s->times, 0);
    return rc;
}

/* Closes the client in whatever it is doing; nothing may be left on the loop. */
static inline void close_client(void) {
    int closed = 0;
    store_async_close(client, on_closed, &closed);
    ck_assert_int_eq(closed, 0); /* never inside the call */
    ck_assert_int_eq(uv_run(&loop, UV_RUN_DEFAULT), 0);
    ck_assert_int_eq(closed, 1);
}

/* Makes a call and waits for what it says. */
#define CALL(s, call)                                                                              \
    do {                                                                                           \
        struct said *said = &(s);                                                                  \
        *said = (struct said){0};                                                                  \
        ck_assert_int_eq((call), 0);                                                               \
        ck_assert_int_eq(said->times, 0); /* never inside the call */                              \
        run_until(said);                                                                           \
    } while (0)

#endif
