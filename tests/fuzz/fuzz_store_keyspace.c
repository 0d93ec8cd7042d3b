/* libFuzzer target: several clients, raw bytes, one key space with tight limits. Nothing crashes,
 * memory stays in its bound, and when all have left and every key is deleted, nothing is left.
 *
 * Input: pieces of  u8 client (low 2 bits; bit 7: it disconnects), u8 length, bytes. */
#include "base/assert.h"
#include "tests/lib/store_peer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define CLIENTS 4
static const struct store_limits limits = {64, 4096, 64, 16384};
static const size_t memory_max = 64 << 10;

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

static void reopen(struct peer *p, struct store_keyspace *keys) {
    peer_close(p);
    peer_open(p, keys, &limits);
}

static void collect_entry(void *arg, struct store_entry *e) {
    struct cr_buffer *names = arg;
    uint8_t len[8];
    store_put_u64(len, e->key_len);
    if (cr_buffer_append(names, len, 8) < 0 || cr_buffer_append(names, e->key, e->key_len) < 0)
        abort();
}

/* The number in front of the reply to one request about a name. */
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

/* Whatever name is left, as a key and as a queue. */
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

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct store_keyspace keys;
    struct peer peers[CLIENTS];
    store_keyspace_init(&keys, (const uint64_t[2]){3, 4});
    keys.memory_max = memory_max;
    keys.reply_max = 32 << 10;
    for (int i = 0; i < CLIENTS; i++) peer_open(&peers[i], &keys, &limits);
    for (size_t at = 0; at + 2 <= size;) {
        struct peer *p = &peers[data[at] % CLIENTS];
        size_t len = data[at + 1];
        if (data[at] & 0x80 || p->error != 0) reopen(p, &keys);
        at += 2;
        if (len > size - at) len = size - at;
        peer_send(p, data + at, len);
        at += len;
        drain(&keys, peers);
        check(&keys, peers);
    }
    for (int i = 0; i < CLIENTS; i++) peer_close(&peers[i]);
    CR_ASSERT(keys.wait_count == 0 && keys.wait_first == NULL && keys.ready_first == NULL);
    delete_everything(&keys);
    CR_ASSERT(keys.memory == 0 && keys.table.count == 0 && keys.key_count == 0);
    CR_ASSERT(keys.key_bytes == 0 && keys.value_bytes == 0 && keys.queue_count == 0);
    store_keyspace_done(&keys);
    return 0;
}
