/* Lets a test in another language use one of our stores: it opens one store, reads commands from
 * stdin and prints the results to stdout.
 *
 *   store_driver tcp HOST PORT modern|legacy|probe TIMEOUT_MS
 *   store_driver file PATH WORLD_SIZE
 *
 * Each line of stdin is one command: a name, a timeout in ms, then the fields. Keys and values are
 * written in hex; "-" is an empty one. For each command one line is printed: "ok FIELDS..." or
 * "error CODE TEXT". One more line of this form, printed first, is the result of opening. */
#include "base/time/clock.h"
#include "store/store.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FIELDS_MAX 200000

struct request {
    char *word[FIELDS_MAX];
    size_t count;
    struct store_bytes bytes[FIELDS_MAX]; /* the fields after the timeout, decoded */
    size_t byte_count;
    int64_t timeout_ms;
};

static struct request request; /* static, because it is too big for the stack */

static void print_hex(struct store_bytes b) {
    const unsigned char *p = b.data;
    (void) fputs(b.len == 0 ? " -" : " ", stdout);
    for (size_t i = 0; i < b.len; i++) (void) printf("%02x", p[i]);
}

static unsigned nibble(char c) {
    return c <= '9' ? (unsigned) (c - '0') : (unsigned) (c - 'a' + 10);
}

/* Decodes hex text in place; the result is half as long as the text. */
static struct store_bytes parse_hex(char *text) {
    if (strcmp(text, "-") == 0) return (struct store_bytes){text, 0};
    size_t len = strlen(text) / 2;
    for (size_t i = 0; i < len; i++)
        text[i] = (char) (nibble(text[2 * i]) << 4 | nibble(text[2 * i + 1]));
    return (struct store_bytes){text, len};
}

static void parse(char *line) {
    request.count = request.byte_count = 0;
    for (char *w = strtok(line, " \n"); w != NULL && request.count < FIELDS_MAX;
         w = strtok(NULL, " \n"))
        request.word[request.count++] = w;
    int64_t ms = request.count > 1 ? strtoll(request.word[1], NULL, 10) : 0;
    request.timeout_ms = ms < 0 ? CR_FOREVER : ms;
}

/* Decodes the fields after the timeout, beginning with field number `from`. */
static void parse_bytes(size_t from) {
    for (size_t i = 2 + from; i < request.count; i++)
        request.bytes[request.byte_count++] = parse_hex(request.word[i]);
}

static int64_t number(size_t field) { return strtoll(request.word[2 + field], NULL, 10); }

static void answer(int rc, const struct cr_error *err) {
    if (rc < 0) (void) printf("error %d %s\n", rc, err->text);
}

static void answer_ok(int rc, const struct cr_error *err) {
    if (rc == 0) (void) puts("ok");
    answer(rc, err);
}

static void answer_number(int rc, int64_t value, const struct cr_error *err) {
    if (rc == 0) (void) printf("ok %lld\n", (long long) value);
    answer(rc, err);
}

static void answer_value(int rc, void *value, size_t len, const struct cr_error *err) {
    if (rc == 0) {
        (void) fputs("ok", stdout);
        print_hex((struct store_bytes){value, len});
        (void) fputs("\n", stdout);
        free(value);
    }
    answer(rc, err);
}

static void answer_list(int rc, struct store_list *list, const struct cr_error *err) {
    if (rc == 0) {
        (void) fputs("ok", stdout);
        for (size_t i = 0; i < list->count; i++) print_hex(list->items[i]);
        (void) fputs("\n", stdout);
        store_list_done(list);
    }
    answer(rc, err);
}

/* ---- one function for each form of arguments and result ---- */

static int is(const char *op, const char *name) { return strcmp(op, name) == 0; }

static int run_keyed(struct store *s, const char *op, struct cr_error *e) {
    const struct store_bytes *b = request.bytes;
    int64_t t = request.timeout_ms;
    int rc = -ENOSYS;
    if (is(op, "set")) rc = store_set(s, b[0], b[1], t, e);
    if (is(op, "append")) rc = store_append(s, b[0], b[1], t, e);
    if (is(op, "queue_push")) rc = store_queue_push(s, b[0], b[1], t, e);
    if (rc != -ENOSYS) answer_ok(rc, e);
    return rc != -ENOSYS;
}

static int run_valued(struct store *s, const char *op, struct cr_error *e) {
    const struct store_bytes *b = request.bytes;
    int64_t t = request.timeout_ms;
    void *value = NULL;
    size_t len = 0;
    int rc = -ENOSYS;
    if (is(op, "get")) rc = store_get(s, b[0], t, &value, &len, e);
    if (is(op, "queue_pop")) rc = store_queue_pop(s, b[0], t, &value, &len, e);
    struct store_swap swap = {b[0], b[1], b[2]};
    if (is(op, "compare_set")) rc = store_compare_set(s, &swap, t, &value, &len, e);
    if (rc != -ENOSYS) answer_value(rc, value, len, e);
    return rc != -ENOSYS;
}

static int add_raw(struct store *s, struct store_bytes raw_key, int64_t delta,
                   int64_t timeout_ms, int64_t *total, struct cr_error *err) {
    return store_client_add_raw((struct store_client *) (void *) s, raw_key, delta, timeout_ms,
                                total, err);
}

static int run_counted(struct store *s, const char *op, struct cr_error *e) {
    const struct store_bytes *b = request.bytes;
    int64_t t = request.timeout_ms, n = 0;
    int flag = 0, rc = -ENOSYS;
    if (is(op, "num_keys")) rc = store_num_keys(s, t, &n, e);
    if (is(op, "queue_len")) rc = store_queue_len(s, b[0], t, &n, e);
    if (is(op, "delete")) rc = store_delete(s, b[0], t, &flag, e);
    if (is(op, "check")) rc = store_check(s, b, request.byte_count, t, &flag, e);
    if (is(op, "add")) rc = store_add(s, b[0], number(0), t, &n, e);
    if (is(op, "add_raw")) rc = add_raw(s, b[0], number(0), t, &n, e);
    if (rc != -ENOSYS) answer_number(rc, n + flag, e);
    return rc != -ENOSYS;
}

static int run_listed(struct store *s, const char *op, struct cr_error *e) {
    const struct store_bytes *b = request.bytes;
    size_t n = request.byte_count;
    int64_t t = request.timeout_ms;
    struct store_list list = {0};
    if (is(op, "wait"))
        answer_ok(store_wait(s, b, n, t, e), e);
    else if (is(op, "multi_set")) /* fields: all keys, then all values */
        answer_ok(store_multi_set(s, b, b + n / 2, n / 2, t, e), e);
    else if (is(op, "barrier"))
        answer_ok(store_barrier(s, b[0], number(0), t, e), e);
    else if (is(op, "multi_get"))
        answer_list(store_multi_get(s, b, n, t, &list, e), &list, e);
    else if (is(op, "list_keys"))
        answer_list(store_list_keys(s, t, &list, e), &list, e);
    else
        return 0;
    return 1;
}

static void run(struct store *s, char *line) {
    struct cr_error e = {0};
    parse(line);
    const char *op = request.count > 0 ? request.word[0] : "";
    parse_bytes(is(op, "add") || is(op, "add_raw") || is(op, "barrier"));
    int known = run_keyed(s, op, &e) || run_valued(s, op, &e) || run_counted(s, op, &e) ||
                run_listed(s, op, &e);
    if (!known) (void) printf("error -22 unknown command '%s'\n", op);
    (void) fflush(stdout);
}

/* ---- opening ---- */

static int open_tcp(char **argv, struct store **out, struct cr_error *err) {
    enum store_protocol p = strcmp(argv[4], "modern") == 0   ? STORE_PROTOCOL_MODERN
                            : strcmp(argv[4], "legacy") == 0 ? STORE_PROTOCOL_LEGACY
                                                             : STORE_PROTOCOL_PROBE;
    struct store_client *c = NULL;
    int rc = store_client_connect(argv[2], (uint16_t) atoi(argv[3]), p, atoll(argv[5]), &c, err);
    if (rc < 0) return rc;
    (void) printf("ok %s\n", store_client_protocol(c));
    *out = store_client_store(c);
    return 0;
}

static int open_store(int argc, char **argv, struct store **out, struct cr_error *err) {
    if (argc == 6 && strcmp(argv[1], "tcp") == 0) return open_tcp(argv, out, err);
    if (argc != 4 || strcmp(argv[1], "file") != 0)
        return cr_fail(err, -EINVAL, "read the head of store_driver.c");
    int rc = store_file_open(argv[2], atoll(argv[3]), out, err);
    if (rc == 0) (void) puts("ok");
    return rc;
}

int main(int argc, char **argv) {
    struct store *store = NULL;
    struct cr_error err = {0};
    int rc = open_store(argc, argv, &store, &err);
    if (rc < 0) {
        (void) printf("error %d %s\n", rc, err.text);
        return 1;
    }
    (void) fflush(stdout);
    char *line = NULL;
    size_t cap = 0;
    while (getline(&line, &cap, stdin) > 0) run(store, line);
    free(line);
    store_close(store);
    return 0;
}
