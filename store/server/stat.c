/* Writes the reply to 'crun-store stat', as JSON (docs/protocols/store.md, section 6). No JSON
 * library is used: the server is also a part of the module store_host.so, which workers load, and
 * workers must not need a JSON library. */
#include "store/server/server_internal.h"

#include "base/network/address.h"

#include <errno.h>
#include <unistd.h>

/* once the text is longer than this many bytes, no further waiting client is listed */
#define TEXT_MAX ((size_t) 1 << 20)

/* The JSON text that is being written. If an append fails, `rc` keeps the error and all later
 * appends do nothing, so only the last caller has to check rc. */
struct json {
    struct cr_buffer *out;
    const char *separator;
    int rc;
};

static void put(struct json *j, const char *data, size_t len) {
    if (j->rc == 0) j->rc = cr_buffer_append(j->out, data, len);
}

#define PUT(j, ...)                                                                                \
    do {                                                                                           \
        if ((j)->rc == 0) (j)->rc = cr_buffer_printf((j)->out, __VA_ARGS__);                       \
    } while (0)

/* Writes a key as a JSON string, with one code point for each byte. Bytes outside 0x20..0x7e,
 * quotes and backslashes are written as \u00XX. So the text is valid JSON whatever bytes the key
 * has, and the reader can restore the bytes. */
static void put_string(struct json *j, const uint8_t *data, size_t len) {
    put(j, "\"", 1);
    for (size_t i = 0; i < len; i++) {
        if (data[i] < 0x20 || data[i] > 0x7e || data[i] == '"' || data[i] == '\\') {
            PUT(j, "\\u%04x", data[i]);
        } else {
            put(j, (const char *) &data[i], 1);
        }
    }
    put(j, "\"", 1);
}

static void put_number(struct json *j, const char *name, uint64_t value) {
    PUT(j, "%s\"%s\":%llu", j->separator, name, (unsigned long long) value);
    j->separator = ",";
}

static void put_missing(struct json *j, const struct store_wait *w) {
    size_t shown = 0;
    PUT(j, "\"keys\":[");
    for (size_t i = 0; i < w->count && shown < STORE_STAT_KEYS_MAX; i++) {
        const struct store_entry *e = w->registrations[i].entry;
        if (e == NULL) continue;
        if (shown++ > 0) put(j, ",", 1);
        put_string(j, e->key, e->key_len);
    }
    PUT(j, "]");
}

static void put_wait(struct json *j, const struct store_space *space, const struct store_wait *w) {
    const struct store_connection *c =
        (const void *) ((const char *) w->session - offsetof(struct store_connection, session));
    char peer[CR_ADDRESS_MAX];
    cr_address_format(&c->peer.sa, peer);
    PUT(j, "{\"peer\":\"%s\",\"kind\":\"%s\",\"for_ms\":%lld,\"missing\":%zu,", peer,
        w->barrier ? "barrier" : "wait",
        (long long) ((int64_t) uv_now(&space->server->loop) - w->since_ms), w->missing);
    put_missing(j, w);
    PUT(j, "}");
}

static void put_waiting(struct json *j, const struct store_space *space) {
    put_number(j, "waiting_clients", space->keys.wait_count);
    PUT(j, ",\"waiting\":[");
    size_t shown = 0;
    const struct store_wait *w;
    TAILQ_FOREACH (w, &space->keys.waits, next) {
        if (shown == STORE_STAT_WAITERS_MAX || j->out->len > TEXT_MAX) break;
        if (shown++ > 0) put(j, ",", 1);
        put_wait(j, space, w);
    }
    PUT(j, "]");
}

static void put_kinds(struct json *j, const struct store_keyspace *keys) {
    PUT(j, ",\"operations_by_kind\":{");
    j->separator = "";
    for (int op = 0; op < STORE_OP_COUNT; op++) {
        if (keys->op_count[op] > 0) {
            put_number(j, store_op_name((enum store_op) op), keys->op_count[op]);
        }
    }
    PUT(j, "}");
    j->separator = ",";
}

static void put_counts(struct json *j, const struct store_space *space) {
    const struct store_keyspace *keys = &space->keys;
    put_number(j, "uptime_ms", uv_now(&space->server->loop) - space->opened_ms);
    put_number(j, "clients", space->connection_count - space->admin_count);
    put_number(j, "clients_max", space->server->options.client_max);
    put_number(j, "keys", keys->key_count);
    put_number(j, "queues", keys->queue_count);
    put_number(j, "key_bytes", keys->key_bytes);
    put_number(j, "value_bytes", keys->value_bytes);
    put_number(j, "memory", keys->memory);
    put_number(j, "memory_max", keys->memory_max);
    put_number(j, "bytes_in", space->bytes_in);
    put_number(j, "bytes_out", space->bytes_out);
    put_number(j, "operations", space->operations);
    PUT(j, ",\"operations_per_second\":%.1f", space->rate);
}

void store_count_rate(struct store_space *space) {
    uint64_t now = uv_now(&space->server->loop);
    uint64_t elapsed_ms = now - space->rate_since_ms;
    if (elapsed_ms < 1000) return;
    uint64_t operations = space->operations - space->rate_operations;
    space->rate = (double) operations * 1000.0 / (double) elapsed_ms;
    space->rate_since_ms = now;
    space->rate_operations = space->operations;
}

int store_stat(const struct store_space *space, struct cr_buffer *out) {
    struct json j = {.out = out, .separator = ","};
    PUT(&j, "{\"version\":\"%s\",\"pid\":%d,\"address\":\"%s\"", CRUN_VERSION, (int) getpid(),
        space->address);
    put_counts(&j, space);
    put_kinds(&j, &space->keys);
    put_waiting(&j, space);
    PUT(&j, "}");
    return j.rc;
}
