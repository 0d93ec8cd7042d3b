/* Compares store/keyspace with a much simpler model of it. Many clients send a few hundred thousand
 * random requests, and each byte that a client receives must be the byte that the model predicts:
 * first with each client on a connection of its own, then with the clients at three gateways, whose
 * connections to the store break again and again.
 *
 *     test_store_model [SEED [REQUESTS]]  each run prints its seed; give that seed to repeat it */
#include "tests/lib/store_peer.h"
#include "tests/lib/store_trunk.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <time.h>

#define CLIENTS   24
#define NAMES     12 /* a small number, so that clients often use the same name */
#define TEXT_MAX  200
#define QUEUE_MAX 64

/* ---- the model ---- */

struct model_name {
    bool exists;
    char text[TEXT_MAX];
    size_t len;
    char queue[QUEUE_MAX][8];
    size_t queue_lens[QUEUE_MAX];
    size_t queue_count;
};

/* A client: whether it waits, for which names, and since when; a push to a queue wakes the client
 * that has waited longest. */
struct model_client {
    bool waiting, barrier, legacy;
    bool misses[NAMES];
    uint64_t since;
    struct cr_buffer expected;
};

static struct model_name names[NAMES];
static struct model_client model[CLIENTS];
static struct peer peers[CLIENTS];
static struct store_keyspace keys;
static uint64_t now, state;

/* If has_gateways is true, client i is a worker of gateway i % NODES. */
#define NODES 3
static bool has_gateways;
static struct trunk_ends trunks[NODES];
static struct store_gateway_worker *workers[CLIENTS];

static uint32_t pick(uint32_t n) { /* splitmix64 */
    state += UINT64_C(0x9e3779b97f4a7c15);
    uint64_t z = state;
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return (uint32_t) ((z ^ z >> 31) % n);
}

static void expect(struct model_client *m, const void *data, size_t len) {
    if (cr_buffer_append(&m->expected, data, len) < 0) abort();
}

static void expect_byte(struct model_client *m, uint8_t byte) { expect(m, &byte, 1); }

static void expect_number(struct model_client *m, uint64_t number) {
    uint8_t raw[8];
    store_put_u64(raw, number);
    expect(m, raw, 8);
}

static void expect_value(struct model_client *m, const char *text, size_t len) {
    expect_number(m, len);
    expect(m, text, len);
}

static bool model_ready(int name) { return names[name].exists || names[name].queue_count > 0; }

static bool misses_any(const struct model_client *m) {
    for (int i = 0; i < NAMES; i++) {
        if (m->misses[i]) return true;
    }
    return false;
}

/* Records that a name for which the client waits exists. Returns true if this ends the client's
 * wait, because all its names exist. */
static bool model_seen(struct model_client *m, int name) {
    m->misses[name] = false;
    if (misses_any(m)) return false;
    m->waiting = false;
    expect_byte(m, 0);
    return true;
}

static void model_wake_all(int name) {
    for (int i = 0; i < CLIENTS; i++) {
        if (model[i].waiting && model[i].misses[name]) (void) model_seen(&model[i], name);
    }
}

/* Ends the wait of one client that waits for the name: of the client that has waited longest among
 * those that wait for no other missing name. Clients that have waited longer, but also wait for
 * another missing name, only record that this name exists. */
static void model_wake_one(int name) {
    for (;;) {
        struct model_client *first = NULL;
        for (int i = 0; i < CLIENTS; i++) {
            struct model_client *m = &model[i];
            if (!m->waiting || !m->misses[name]) continue;
            if (first == NULL || m->since < first->since) first = m;
        }
        if (first == NULL || model_seen(first, name)) return;
    }
}

static void model_put(int name, const char *text, size_t len, bool wake) {
    memmove(names[name].text, text, len);
    names[name].len = len;
    names[name].exists = true;
    if (wake) model_wake_all(name);
}

static void model_drop_wait(struct model_client *m) {
    m->waiting = false;
    memset(m->misses, 0, sizeof(m->misses));
}

/* ---- one random request, sent to the key space and executed by the model ---- */

static const char *const spelled[NAMES] = {"a", "b",     "c",         "d",  "e",  "f",
                                           "",  "init/", "long name", "q0", "q1", "n"};
static struct cr_buffer request;

struct turn {
    struct model_client *m;
    struct store_encoder e;
    int name;
    struct store_bytes key;
};

static struct store_bytes name_bytes(int name) { return STORE_BYTES(spelled[name]); }

static size_t random_text(char *text) {
    static const char *const numbers[] = {"5", "-2", " 7x", "0", "12"};
    if (pick(2) == 0) return (size_t) snprintf(text, 8, "%s", numbers[pick(5)]);
    size_t len = pick(8);
    for (size_t i = 0; i < len; i++) text[i] = (char) ('0' + pick(10));
    return len;
}

static void say_value(struct turn *t, enum store_op op, const char *text, size_t len) {
    if (store_encode_value_head(&t->e, op, t->key, len) < 0) abort();
    if (cr_buffer_append(&request, text, len) < 0) abort();
}

static void turn_set(struct turn *t) {
    char text[8];
    size_t len = random_text(text);
    say_value(t, STORE_OP_SET, text, len);
    model_put(t->name, text, len, true);
}

static void turn_append(struct turn *t) {
    struct model_name *n = &names[t->name];
    char text[TEXT_MAX];
    size_t len = random_text(text);
    if (n->exists && n->len + len > TEXT_MAX - 10) len = 0;
    say_value(t, STORE_OP_APPEND, text, len);
    size_t old = n->exists ? n->len : 0;
    char whole[TEXT_MAX];
    memcpy(whole, n->text, old);
    memcpy(whole + old, text, len);
    model_put(t->name, whole, old + len, true);
}

static void turn_get(struct turn *t) {
    const struct model_name *n = &names[t->name];
    if (store_encode_key(&t->e, STORE_OP_GET, t->key) < 0) abort();
    expect_value(t->m, n->text, n->exists ? n->len : 0);
}

static void turn_delete(struct turn *t) {
    if (store_encode_key(&t->e, STORE_OP_DELETE, t->key) < 0) abort();
    expect_number(t->m, names[t->name].exists);
    names[t->name].exists = false;
}

/* Parses the number at the beginning of the name's value. Returns false if there is no number. */
static bool model_number(int name, int64_t *out) {
    *out = 0;
    if (!names[name].exists) return true;
    char text[TEXT_MAX + 1], *end;
    memcpy(text, names[name].text, names[name].len);
    text[names[name].len] = '\0';
    errno = 0;
    *out = strtoll(text, &end, 10);
    return end != text && errno == 0;
}

static int64_t model_count(int name, int64_t delta, bool wake) {
    int64_t number;
    char text[32];
    (void) model_number(name, &number);
    number += delta;
    int len = snprintf(text, sizeof(text), "%" PRId64, number);
    model_put(name, text, (size_t) len, wake);
    return number;
}

static void turn_add(struct turn *t) {
    int64_t delta = (int64_t) pick(20) - 10, number;
    if (!model_number(t->name, &number)) { /* such an ADD closes the connection;
                                            * test_store_keyspace.c tests that */
        turn_get(t);
        return;
    }
    if (store_encode_number(&t->e, STORE_OP_ADD, t->key, delta) < 0) abort();
    expect_number(t->m, (uint64_t) model_count(t->name, delta, true));
}

static void turn_compare_set(struct turn *t) {
    struct model_name *n = &names[t->name];
    char expected[TEXT_MAX], desired[8];
    size_t expected_len = pick(3) == 0 || !n->exists ? random_text(expected) : n->len;
    if (n->exists && expected_len == n->len) memcpy(expected, n->text, n->len);
    if (pick(4) == 0) expected_len = 0;
    size_t len = random_text(desired);
    if (store_encode_compare_set(&t->e, t->key, (struct store_bytes){expected, expected_len},
                                 (struct store_bytes){desired, len}) < 0)
        abort();
    bool same = n->exists && n->len == expected_len && memcmp(n->text, expected, expected_len) == 0;
    if (same || (!n->exists && expected_len == 0)) {
        model_put(t->name, desired, len, true);
        expect_value(t->m, desired, len);
    } else if (n->exists) {
        expect_value(t->m, n->text, n->len);
    } else {
        expect_value(t->m, expected, expected_len);
    }
}

/* Draws a list of up to five names; a name may occur twice. */
static size_t random_list(int list[5], struct store_bytes keys_out[5]) {
    size_t n = pick(6);
    if (n > 5) n = 5;
    for (size_t i = 0; i < n; i++) {
        list[i] = (int) pick(NAMES);
        keys_out[i] = name_bytes(list[i]);
    }
    return n;
}

static void turn_check_or_wait(struct turn *t, enum store_op op) {
    int list[5];
    struct store_bytes key_list[5];
    size_t n = random_list(list, key_list);
    if (store_encode_keys(&t->e, op, key_list, n) < 0) abort();
    if (op == STORE_OP_WAIT) model_drop_wait(t->m);
    bool missing = false;
    for (size_t i = 0; i < n; i++) {
        if (model_ready(list[i])) continue;
        missing = true;
        if (op == STORE_OP_WAIT) t->m->misses[list[i]] = true;
    }
    if (op == STORE_OP_CHECK) expect_byte(t->m, missing ? 1 : 0);
    if (op == STORE_OP_WAIT && !missing) expect_byte(t->m, 0);
    if (op == STORE_OP_WAIT && missing) t->m->waiting = true;
    if (op == STORE_OP_WAIT) t->m->since = now;
}

static void turn_check(struct turn *t) { turn_check_or_wait(t, STORE_OP_CHECK); }
static void turn_wait(struct turn *t) { turn_check_or_wait(t, STORE_OP_WAIT); }

static void turn_cancel(struct turn *t) {
    if (store_encode_plain(&t->e, STORE_OP_CANCEL_WAIT) < 0) abort();
    model_drop_wait(t->m);
    expect_byte(t->m, 1);
}

static void turn_num_keys(struct turn *t) {
    if (store_encode_plain(&t->e, STORE_OP_NUM_KEYS) < 0) abort();
    uint64_t n = 0;
    for (int i = 0; i < NAMES; i++) n += names[i].exists;
    expect_number(t->m, n);
}

static void turn_multi_get(struct turn *t) {
    int list[5];
    struct store_bytes key_list[5];
    size_t n = random_list(list, key_list);
    if (store_encode_keys(&t->e, STORE_OP_MULTI_GET, key_list, n) < 0) abort();
    for (size_t i = 0; i < n; i++) {
        expect_value(t->m, names[list[i]].text, names[list[i]].exists ? names[list[i]].len : 0);
    }
}

static void turn_multi_set(struct turn *t) {
    int list[5];
    struct store_bytes key_list[5], values[5];
    char text[5][8];
    size_t n = random_list(list, key_list);
    for (size_t i = 0; i < n; i++) values[i] = (struct store_bytes){text[i], random_text(text[i])};
    if (store_encode_pairs(&t->e, key_list, values, n) < 0) abort();
    for (size_t i = 0; i < n; i++) model_put(list[i], text[i], values[i].len, true);
}

static bool is_awaited(int name) {
    for (int i = 0; i < CLIENTS; i++) {
        if (model[i].waiting && model[i].misses[name]) return true;
    }
    return false;
}

/* If clients wait for the name and are served through gateways, turn_push() and turn_barrier() send
 * a GET instead: a gateway's wait stands for the waits of several clients, so the store does not
 * know which client has waited longest. gateway.h says what differs for barriers.
 * test_store_gateway.c tests what gateways promise about such names. */
static void turn_push(struct turn *t) {
    struct model_name *n = &names[t->name];
    if (n->queue_count == QUEUE_MAX || (has_gateways && is_awaited(t->name))) {
        turn_get(t);
        return;
    }
    char text[8];
    size_t len = random_text(text);
    say_value(t, STORE_OP_QUEUE_PUSH, text, len);
    memcpy(n->queue[n->queue_count], text, len);
    n->queue_lens[n->queue_count++] = len;
    model_wake_one(t->name);
}

static void turn_pop(struct turn *t) {
    struct model_name *n = &names[t->name];
    if (store_encode_key(&t->e, STORE_OP_QUEUE_POP, t->key) < 0) abort();
    expect_number(t->m, n->queue_count);
    if (n->queue_count == 0) return;
    expect_value(t->m, n->queue[0], n->queue_lens[0]);
    n->queue_count--;
    memmove(n->queue[0], n->queue[1], n->queue_count * sizeof(n->queue[0]));
    memmove(&n->queue_lens[0], &n->queue_lens[1], n->queue_count * sizeof(n->queue_lens[0]));
}

static void turn_len(struct turn *t) {
    if (store_encode_key(&t->e, STORE_OP_QUEUE_LEN, t->key) < 0) abort();
    expect_number(t->m, names[t->name].queue_count);
}

static void turn_barrier(struct turn *t) {
    int64_t number, world = (int64_t) pick(30);
    if (!model_number(t->name, &number) || (has_gateways && is_awaited(t->name))) {
        turn_get(t);
        return;
    }
    if (store_encode_number(&t->e, STORE_OP_BARRIER, t->key, world) < 0) abort();
    model_drop_wait(t->m);
    number = model_count(t->name, 1, false);
    if (number >= world) {
        expect_byte(t->m, 0);
        model_wake_all(t->name);
        return;
    }
    t->m->waiting = true;
    t->m->misses[t->name] = true;
    t->m->since = now;
}

static void (*const turns[])(struct turn *) = {
    turn_set,    turn_set,    turn_append,      turn_get,       turn_get,       turn_delete,
    turn_delete, turn_add,    turn_compare_set, turn_check,     turn_wait,      turn_wait,
    turn_wait,   turn_cancel, turn_num_keys,    turn_multi_get, turn_multi_set, turn_push,
    turn_pop,    turn_pop,    turn_len,         turn_barrier,
};

/* ---- running the comparison ---- */

static void send_bytes(int i, const void *data, size_t len) {
    const char *reason;
    if (!has_gateways) peer_send(&peers[i], data, len);
    else if (store_gateway_from_worker(workers[i], data, len, &reason) < 0) abort();
}

static void open_client(int i) {
    model[i].legacy = pick(3) == 0;
    if (has_gateways) workers[i] = store_gateway_add(trunks[i % NODES].gateway, NULL);
    peer_open(&peers[i], &keys, &peer_limits);
    peers[i].parser.dialect = model[i].legacy ? STORE_DIALECT_LEGACY : STORE_DIALECT_NONE;
    peers[i].session.legacy = model[i].legacy;
    /* A gateway finds the dialect of a client by the first byte that the client sends. Some legacy
     * requests begin with a byte that is no valid first byte, because no client of torch sends it
     * first. So this client first sends NUM_KEYS. */
    if (has_gateways && model[i].legacy) {
        send_bytes(i, "\6", 1); /* NUM_KEYS */
        uint64_t n = 0;
        for (int name = 0; name < NAMES; name++) n += names[name].exists;
        expect_number(&model[i], n);
    }
    if (!model[i].legacy) send_bytes(i, STORE_VALIDATE_BYTES, STORE_VALIDATE_LEN);
    if (!model[i].legacy) peers[i].parser.dialect = STORE_DIALECT_MODERN;
    if (has_gateways) trunks_settle(&keys, trunks, NODES);
}

static void close_client(int i) {
    if (has_gateways) store_gateway_remove(workers[i]);
    peer_close(&peers[i]);
}

static void reopen_client(int i) {
    close_client(i);
    model_drop_wait(&model[i]);
    cr_buffer_clear(&model[i].expected);
    open_client(i);
}

/* Delivers all bytes between gateways and store. First it delivers a few pieces of random length,
 * and breaks some of the connections after a piece. */
static void carry(void) {
    while (pick(4) == 0) {
        struct trunk_ends *t = &trunks[pick(NODES)];
        (void) trunk_up(t, pick(60));
        trunk_wake(&keys);
        (void) trunk_down(t, pick(60));
        if (pick(2) == 0) trunk_break(t);
    }
    trunks_settle(&keys, trunks, NODES);
}

static void receive(int i, struct cr_buffer *got) {
    if (!has_gateways) {
        peer_receive(&peers[i], got);
        return;
    }
    struct cr_buffer *replies = store_gateway_replies(workers[i]);
    if (cr_buffer_append(got, replies->data, replies->len) < 0) abort();
    cr_buffer_clear(replies);
}

static int compare_all(uint64_t turn) {
    if (has_gateways) carry();
    for (int i = 0; i < CLIENTS; i++) {
        struct cr_buffer got = {0};
        receive(i, &got);
        struct cr_buffer *want = &model[i].expected;
        bool same =
            got.len == want->len && (got.len == 0 || memcmp(got.data, want->data, got.len) == 0);
        if (!same || peers[i].error != 0) {
            (void) printf("request %" PRIu64 ", client %d: got %zu bytes, expected %zu, error %d\n",
                          turn, i, got.len, want->len, peers[i].error);
            return -1;
        }
        cr_buffer_done(&got);
        cr_buffer_clear(want);
    }
    return 0;
}

static void one_turn(void) {
    int i = (int) pick(CLIENTS);
    if (pick(200) == 0) {
        reopen_client(i);
        return;
    }
    struct turn t = {.m = &model[i], .name = (int) pick(NAMES)};
    t.e = (struct store_encoder){&request, peers[i].parser.dialect, STORE_BYTES("/")};
    t.key = name_bytes(t.name);
    void (*run)(struct turn *) = turns[pick(sizeof(turns) / sizeof(turns[0]))];
    bool modern_only =
        run == turn_push || run == turn_pop || run == turn_len || run == turn_barrier;
    if (model[i].legacy && modern_only) run = turn_add;
    if (model[i].legacy) model_drop_wait(&model[i]); /* any other request ends the wait of a legacy
                                                      * client */
    run(&t);
    size_t cut = pick((uint32_t) request.len + 1);
    send_bytes(i, request.data, cut);
    send_bytes(i, request.data + cut, request.len - cut);
    cr_buffer_clear(&request);
}

/* Disconnects all clients and deletes all keys; the key space must then use no memory. */
static int clean_up(void) {
    for (int i = 0; i < CLIENTS; i++) {
        close_client(i);
        cr_buffer_done(&model[i].expected);
    }
    for (int i = 0; has_gateways && i < NODES; i++) trunk_close(&trunks[i]);
    int rc = keys.wait_count == 0 && TAILQ_EMPTY(&keys.waits) && TAILQ_EMPTY(&keys.ready) ? 0 : -1;
    if (rc < 0) (void) printf("waits are left behind\n");
    store_keyspace_done(&keys);
    cr_buffer_done(&request);
    return rc;
}

static int run(uint64_t seed, uint64_t count, bool through_gateways) {
    has_gateways = through_gateways;
    memset(names, 0, sizeof(names));
    memset(model, 0, sizeof(model));
    store_keyspace_init(&keys, (const uint64_t[2]){seed, 1});
    for (int i = 0; has_gateways && i < NODES; i++) trunk_open(&trunks[i], &keys, &peer_limits);
    for (int i = 0; i < CLIENTS; i++) open_client(i);
    int rc = 0;
    for (now = 0; now < count && rc == 0; now++) {
        one_turn();
        rc = compare_all(now);
    }
    return rc < 0 ? rc : clean_up();
}

int main(int argc, char **argv) {
    uint64_t seed = argc > 1 ? strtoull(argv[1], NULL, 0) : (uint64_t) time(NULL) * 1000003u;
    uint64_t count = argc > 2 ? strtoull(argv[2], NULL, 0) : 400000;
    (void) printf("seed %" PRIu64 ", %" PRIu64 " requests, %d clients\n", seed, count, CLIENTS);
    state = seed;
    int rc = run(seed, count, false);
    if (rc == 0) (void) printf("through gateways\n");
    if (rc == 0) rc = run(seed, count / 4, true);
    (void) printf("%s\n", rc == 0 ? "every reply as the model says" : "FAILED");
    return rc == 0 ? 0 : 1;
}
