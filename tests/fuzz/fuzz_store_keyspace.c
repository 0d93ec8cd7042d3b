/* libFuzzer target: several clients send any bytes to one key space with low limits. Between the
 * requests, the key space makes long lists of keys in pieces, and frees cleared entries in pieces.
 * The target checks that the key space's memory stays within its limit, and that a list has no key
 * twice and has every key that existed during the whole listing. At the end all clients disconnect
 * and all keys are deleted; after that the key space must use no memory.
 *
 * Input: a sequence of  u8 what, u8 length, bytes that the client sends.  The bits of `what` are
 * 0 and 1: the number of the client; 2 and 3: how many pieces of each client's list are made before
 * the client sends its bytes; 4: one piece of the cleared entries is freed; 5: the client takes its
 * lists in pieces; 6: all clients disconnect and the key space is cleared; 7: the client
 * disconnects. */
#include "base/assert.h"
#include "store/keyspace/remains.h"
#include "tests/lib/store_peer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define CLIENTS 4
static const struct store_limits limits = {64, 4096, 64, 16384};
static const size_t memory_max = 64 << 10;
static const struct store_pieces pieces = {.list_at_once = 4, .list_step = 3, .free_step = 24};

static void check(const struct store_keyspace *keys, const struct peer *peers) {
    size_t waits = 0;
    for (int i = 0; i < CLIENTS; i++) {
        const struct store_wait *w = peers[i].session.wait;
        if (w == NULL) continue;
        CR_ASSERT(w->session == &peers[i].session && w->missing > 0 && w->missing <= w->count);
        waits++;
    }
    CR_ASSERT(waits == keys->wait_count);
    CR_ASSERT(keys->memory <= memory_max);
    CR_ASSERT(keys->key_count <= keys->table.count);
}

static void drain(struct store_keyspace *keys, struct peer *peers) {
    struct cr_buffer out = {0};
    struct store_session *s;
    while ((s = store_keyspace_take_ready(keys)) != NULL) CR_ASSERT(s->out.pending > 0);
    for (int i = 0; i < CLIENTS; i++) {
        peer_receive(&peers[i], &out);
        CR_ASSERT(peers[i].session.out.pending == 0);
    }
    cr_buffer_done(&out);
}

/* ---- lists in pieces ---- */

/* The keys that existed when a client's list began and at each later piece of that list. */
struct steady {
    bool listing;
    size_t count;
    struct {
        size_t len;
        uint8_t name[64];
    } keys[1024]; /* memory_max has no room for more keys */
};
static struct steady steady[CLIENTS];

static void collect_key(void *arg, struct store_entry *e) {
    struct steady *s = arg;
    if (e->value == NULL) return;
    CR_ASSERT(s->count < 1024);
    s->keys[s->count].len = e->key_len;
    memcpy(s->keys[s->count++].name, e->key, e->key_len);
}

static void begin_lists(struct store_keyspace *keys, const struct peer *peers) {
    for (int i = 0; i < CLIENTS; i++) {
        bool listing = peers[i].session.listing != NULL;
        if (listing && !steady[i].listing) {
            steady[i].count = 0;
            store_key_table_each(&keys->table, collect_key, &steady[i]);
        }
        steady[i].listing = listing;
    }
}

static void keep_steady(struct store_keyspace *keys, struct steady *s) {
    size_t kept = 0;
    for (size_t i = 0; i < s->count; i++) {
        const struct store_entry *e =
            store_key_table_find(&keys->table, s->keys[i].name, s->keys[i].len);
        if (e != NULL && e->value != NULL) s->keys[kept++] = s->keys[i];
    }
    s->count = kept;
}

static void check_list(const struct steady *s, const char *reply, size_t len) {
    struct store_remains seen = {0};
    size_t at = 8, no_matter = 0;
    CR_ASSERT(len >= 8);
    for (uint64_t i = 0; i < store_load_u64(reply); i++) {
        CR_ASSERT(len - at >= 8 && store_load_u64(reply + at) <= len - at - 8);
        size_t key_len = store_load_u64(reply + at);
        uint32_t hash = store_key_table_hash(&seen.table, reply + at + 8, key_len);
        /* the list has no key twice */
        CR_ASSERT(store_key_table_find(&seen.table, reply + at + 8, key_len) == NULL);
        if (store_key_table_insert(&seen.table, hash, reply + at + 8, key_len) == NULL) abort();
        at += 8 + key_len;
    }
    CR_ASSERT(at == len);
    for (size_t i = 0; i < s->count; i++)
        CR_ASSERT(store_key_table_find(&seen.table, s->keys[i].name, s->keys[i].len) != NULL);
    (void) store_remains_free_some(&seen, &no_matter, SIZE_MAX);
}

static void list_on(struct store_keyspace *keys, struct peer *p, struct steady *s) {
    const struct store_output *out = &p->session.out;
    size_t before = out->pending;
    keep_steady(keys, s);
    int rc = store_keyspace_list_on(keys, &p->session, &p->reason);
    if (rc < 0) p->error = rc;
    if (rc != 0) return;
    size_t len = out->pending - before;
    check_list(s, out->bytes.data + out->bytes.len - len, len);
    s->listing = false;
    peer_serve(p, 0); /* executes the requests that arrived during the listing */
}

static void list_all_on(struct store_keyspace *keys, struct peer *peers) {
    for (int i = 0; i < CLIENTS; i++) {
        if (peers[i].session.listing != NULL && peers[i].error == 0)
            list_on(keys, &peers[i], &steady[i]);
    }
    begin_lists(keys, peers);
}

/* ---- connecting, disconnecting, clearing ---- */

static void reopen(struct peer *p, struct store_keyspace *keys) {
    peer_close(p);
    peer_open(p, keys, &limits);
}

static void clear(struct store_keyspace *keys, struct peer *peers, uint64_t seed) {
    size_t before;
    for (int i = 0; i < CLIENTS; i++) reopen(&peers[i], keys);
    before = keys->memory;
    store_keyspace_clear(keys, (const uint64_t[2]){seed, 5});
    CR_ASSERT(keys->memory == before && keys->key_count == 0 && keys->table.count == 0);
}

static void free_some(struct store_keyspace *keys) {
    size_t before = keys->memory;
    bool more = store_keyspace_free_some(keys);
    CR_ASSERT(keys->memory <= before && more == (keys->remains != NULL));
}

/* ---- the end of an input ---- */

static void collect_entry(void *arg, struct store_entry *e) {
    struct cr_buffer *names = arg;
    uint8_t len[8];
    store_put_u64(len, e->key_len);
    if (cr_buffer_append(names, len, 8) < 0 || cr_buffer_append(names, e->key, e->key_len) < 0)
        abort();
}

/* Sends one request about a name and returns the number with which the reply begins. */
static uint64_t ask(struct peer *p, char op, const char *name, size_t len) {
    struct cr_buffer out = {0};
    peer_send(p, &op, 1);
    peer_send(p, name, len);
    peer_receive(p, &out);
    CR_ASSERT(p->error == 0 && out.len >= 8);
    uint64_t number = store_load_u64(out.data);
    cr_buffer_done(&out);
    return number;
}

/* Deletes every remaining name, both as a key and as a queue. */
static void delete_everything(struct store_keyspace *keys) {
    struct cr_buffer names = {0};
    struct peer p;
    peer_open(&p, keys, &limits);
    peer_send(&p, STORE_VALIDATE_BYTES, STORE_VALIDATE_LEN);
    store_key_table_each(&keys->table, collect_entry, &names);
    for (size_t at = 0; at < names.len;) {
        size_t len = 8 + store_load_u64(names.data + at);
        (void) ask(&p, 0x08, names.data + at, len);
        while (ask(&p, 0x0f, names.data + at, len) > 0) {
        }
        at += len;
    }
    peer_close(&p);
    cr_buffer_done(&names);
}

/* Executes one element of the input; the head of this file describes the bits of `what`. */
static void step(struct store_keyspace *keys, struct peer *peers, uint8_t what,
                 const uint8_t *bytes, size_t len) {
    struct peer *p = &peers[what % CLIENTS];
    for (int i = 0; i < (what >> 2 & 3); i++) list_all_on(keys, peers);
    if (what & 0x10) free_some(keys);
    if (what & 0x40) clear(keys, peers, len);
    if (what & 0x80 || p->error != 0) reopen(p, keys);
    begin_lists(keys, peers); /* a new list for each client whose list is complete */
    p->session.lists_in_pieces = what & 0x20;
    peer_send(p, bytes, len);
    begin_lists(keys, peers);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct store_keyspace keys;
    struct peer peers[CLIENTS];
    store_keyspace_init(&keys, (const uint64_t[2]){3, 4});
    keys.memory_max = memory_max;
    keys.reply_max = 32 << 10;
    keys.pieces = pieces;
    for (int i = 0; i < CLIENTS; i++) peer_open(&peers[i], &keys, &limits);
    begin_lists(&keys, peers);
    for (size_t at = 0; at + 2 <= size;) {
        size_t len = data[at + 1];
        if (len > size - at - 2) len = size - at - 2;
        step(&keys, peers, data[at], data + at + 2, len);
        at += 2 + len;
        drain(&keys, peers);
        check(&keys, peers);
    }
    for (int i = 0; i < CLIENTS; i++) peer_close(&peers[i]);
    CR_ASSERT(keys.wait_count == 0 && TAILQ_EMPTY(&keys.waits) && TAILQ_EMPTY(&keys.ready));
    delete_everything(&keys);
    while (store_keyspace_free_some(&keys)) {
    }
    CR_ASSERT(keys.memory == 0 && keys.table.count == 0 && keys.key_count == 0);
    CR_ASSERT(keys.key_bytes == 0 && keys.value_bytes == 0 && keys.queue_count == 0);
    store_keyspace_done(&keys);
    return 0;
}
