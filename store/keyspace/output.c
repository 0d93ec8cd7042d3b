/* Appends to the output of one client, and gives the next bytes to send as iovecs for sendmsg(). */
#include "store/keyspace/output.h"

#include "store/wire/wire.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int store_output_bytes(struct store_output *o, const void *data, size_t len) {
    int rc = cr_buffer_append(&o->bytes, data, len);
    if (rc == 0) o->pending += len;
    return rc;
}

int store_output_u8(struct store_output *o, uint8_t v) { return store_output_bytes(o, &v, 1); }

int store_output_u64(struct store_output *o, uint64_t v) {
    uint8_t raw[8];
    store_put_u64(raw, v);
    return store_output_bytes(o, raw, sizeof(raw));
}

static int output_chunk(struct store_output *o, struct store_value *v) {
    if (o->chunk_count == o->chunk_cap) {
        uint32_t cap = o->chunk_cap == 0 ? 4 : o->chunk_cap * 2;
        struct store_chunk *chunks = realloc(o->chunks, cap * sizeof(*chunks));
        if (chunks == NULL) return -ENOMEM;
        o->chunks = chunks;
        o->chunk_cap = cap;
    }
    o->chunks[o->chunk_count++] = (struct store_chunk){o->bytes.len, store_value_ref(v)};
    o->pending += v->len;
    return 0;
}

int store_output_value(struct store_output *o, struct store_value *v) {
    size_t len = v == NULL ? 0 : v->len;
    if (len >= STORE_REFERENCE_MIN) {
        int rc = store_output_u64(o, len);
        return rc < 0 ? rc : output_chunk(o, v);
    }
    if (cr_buffer_reserve(&o->bytes, 8 + len) < 0) return -ENOMEM;
    char *at = o->bytes.data + o->bytes.len;
    store_put_u64(at, len);
    if (len > 0) memcpy(at + 8, v->data, len);
    o->bytes.len += 8 + len;
    o->pending += 8 + len;
    return 0;
}

struct store_value *store_output_front(const struct store_output *o, size_t *offset) {
    if (o->chunks_sent == o->chunk_count || o->chunks[o->chunks_sent].at > o->bytes_sent) {
        return NULL;
    }
    *offset = o->chunk_offset;
    return o->chunks[o->chunks_sent].value;
}

int store_output_iov(const struct store_output *o, struct iovec *iov, int max, bool lending) {
    int n = 0;
    size_t at = o->bytes_sent;
    size_t offset = o->chunk_offset;
    for (uint32_t i = o->chunks_sent; i < o->chunk_count && n < max; i++) {
        const struct store_chunk *c = &o->chunks[i];
        if (c->at > at) iov[n++] = (struct iovec){o->bytes.data + at, c->at - at};
        at = c->at;
        if (n == max || (lending && store_value_lendable(c->value))) return n;
        iov[n++] = (struct iovec){c->value->data + offset, c->value->len - offset};
        offset = 0;
    }
    if (n < max && at < o->bytes.len)
        iov[n++] = (struct iovec){o->bytes.data + at, o->bytes.len - at};
    return n;
}

static size_t min_size(size_t a, size_t b) { return a < b ? a : b; }

void store_output_sent(struct store_output *o, size_t n) {
    o->pending -= n;
    while (n > 0) {
        bool has_chunk = o->chunks_sent < o->chunk_count;
        struct store_chunk *c = has_chunk ? &o->chunks[o->chunks_sent] : NULL;
        size_t limit = has_chunk ? c->at : o->bytes.len;
        size_t step = min_size(n, limit - o->bytes_sent);
        o->bytes_sent += step;
        n -= step;
        if (!has_chunk || o->bytes_sent < limit) continue;
        step = min_size(n, c->value->len - o->chunk_offset);
        o->chunk_offset += (uint32_t) step;
        n -= step;
        if (o->chunk_offset < c->value->len) continue;
        store_value_unref(c->value);
        o->chunk_offset = 0;
        o->chunks_sent++;
    }
    if (o->pending > 0) return;
    cr_buffer_clear(&o->bytes);
    o->bytes_sent = 0;
    o->chunk_count = o->chunks_sent = 0;
}

void store_output_done(struct store_output *o) {
    for (uint32_t i = o->chunks_sent; i < o->chunk_count; i++)
        store_value_unref(o->chunks[i].value);
    free(o->chunks);
    cr_buffer_done(&o->bytes);
    *o = (struct store_output){0};
}
