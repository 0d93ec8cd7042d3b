/* Reads the fields of etcd's JSON answers: see fields_internal.h. */
#include "rendezvous/etcd/fields_internal.h"

#include "base/memory.h"
#include "base/text/parse.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define ETCD_PORT 2379

/* ---- base64 ---- */

static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

char *etcd_base64(const char *text) {
    size_t len = strlen(text);
    char *out = malloc(4 * ((len + 2) / 3) + 1), *at = out;
    if (out == NULL) return NULL;
    for (size_t i = 0; i < len; i += 3) {
        uint32_t v = (uint32_t) (unsigned char) text[i] << 16;
        if (i + 1 < len) v |= (uint32_t) (unsigned char) text[i + 1] << 8;
        if (i + 2 < len) v |= (uint32_t) (unsigned char) text[i + 2];
        *at++ = digits[v >> 18];
        *at++ = digits[v >> 12 & 63];
        *at++ = i + 1 < len ? digits[v >> 6 & 63] : '=';
        *at++ = i + 2 < len ? digits[v & 63] : '=';
    }
    *at = '\0';
    return out;
}

/* Decodes base64 into the text `out`, which has `room` bytes. Returns 0, or -EINVAL if `in` is not
 * base64, or if the result is too long or contains a NUL. */
static int unbase64(const char *in, char *out, size_t room) {
    uint32_t bits = 0;
    size_t n = 0, have = 0;
    for (; *in != '\0' && *in != '='; in++) {
        const char *d = strchr(digits, *in);
        if (d == NULL) return -EINVAL;
        bits = bits << 6 | (uint32_t) (d - digits);
        have += 6;
        if (have < 8) continue;
        have -= 8;
        if (n + 1 >= room) return -EINVAL;
        out[n++] = (char) (bits >> have & 255);
    }
    out[n] = '\0';
    return memchr(out, '\0', n) == NULL ? 0 : -EINVAL;
}

/* ---- tokens and leases ---- */

bool etcd_read_token(const json_t *answer, char token[ETCD_TOKEN_MAX]) {
    const char *text = json_string_value(json_object_get(answer, "token"));
    if (text == NULL || text[0] == '\0' || strlen(text) >= ETCD_TOKEN_MAX) return false;
    for (const char *c = text; *c != '\0'; c++) {
        if (*c <= ' ' || *c >= 127) return false;
    }
    memcpy(token, text, strlen(text) + 1);
    return true;
}

static bool copy_id(const char *id, char out[ETCD_LEASE_ID_MAX]) {
    out[0] = '\0';
    if (id == NULL || strlen(id) >= ETCD_LEASE_ID_MAX) return false;
    (void) snprintf(out, ETCD_LEASE_ID_MAX, "%s", id);
    return true;
}

bool etcd_read_lease(const json_t *answer, char id[ETCD_LEASE_ID_MAX]) {
    return copy_id(json_string_value(json_object_get(answer, "ID")), id) && id[0] != '\0';
}

/* An expired lease has 0 seconds to live (TTL), and etcd's JSON omits numbers that are 0. */
bool etcd_lease_lives(const json_t *answer) { return json_object_get(answer, "TTL") != NULL; }

/* ---- the cluster ---- */

static bool read_url(const char *url, const char *scheme, struct cr_endpoint *out) {
    size_t n = strlen(scheme);
    return url != NULL && strncmp(url, scheme, n) == 0 &&
           cr_endpoint_parse(url + n, ETCD_PORT, out, NULL) == 0;
}

size_t etcd_read_members(const json_t *answer, bool https, struct cr_endpoint *out, size_t room) {
    const json_t *list = json_object_get(answer, "members");
    const char *scheme = https ? "https://" : "http://";
    size_t n = 0;
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *urls = json_object_get(json_array_get(list, i), "clientURLs");
        for (size_t k = 0; k < json_array_size(urls) && n < room; k++) {
            if (read_url(json_string_value(json_array_get(urls, k)), scheme, &out[n])) n++;
        }
    }
    return n;
}

/* ---- the key ---- */

static bool read_number(const json_t *object, const char *name, uint64_t *out) {
    const char *text = json_string_value(json_object_get(object, name));
    int64_t value;
    if (text == NULL || cr_parse_i64(text, 1, INT64_MAX, &value) < 0) return false;
    *out = (uint64_t) value;
    return true;
}

static bool read_header(const json_t *answer, uint64_t *revision) {
    return read_number(json_object_get(answer, "header"), "revision", revision);
}

/* Reads the value "host:port", the lease and the epoch of a key that exists. Returns false if the
 * value or the epoch cannot be parsed. */
static bool read_key_value(const json_t *kv, struct etcd_key *out) {
    const char *value = json_string_value(json_object_get(kv, "value"));
    char text[CR_HOST_MAX + 16];
    out->exists = true;
    if (value == NULL || unbase64(value, text, sizeof(text)) < 0) return false;
    if (!read_number(kv, "create_revision", &out->epoch)) return false;
    if (cr_endpoint_parse(text, 0, &out->at, NULL) < 0 || out->at.port == 0) return false;
    (void) copy_id(json_string_value(json_object_get(kv, "lease")), out->lease);
    return true;
}

/* Reads the key from `range`, which is the answer to a range request, or the part of a
 * transaction's answer that has the same form. If `range` has no key, *out does not change. Returns
 * false if the key's value cannot be parsed. */
static bool read_kvs(const json_t *range, struct etcd_key *out) {
    const json_t *kvs = json_object_get(range, "kvs");
    return json_array_size(kvs) == 0 || read_key_value(json_array_get(kvs, 0), out);
}

bool etcd_read_range(const json_t *answer, struct etcd_key *out) {
    *out = (struct etcd_key){.exists = false};
    return read_header(answer, &out->revision) && read_kvs(answer, out);
}

bool etcd_read_claim(const json_t *answer, bool *created, struct etcd_key *out) {
    *out = (struct etcd_key){.exists = false};
    *created = json_is_true(json_object_get(answer, "succeeded"));
    if (!read_header(answer, &out->revision)) return false;
    const json_t *first = json_array_get(json_object_get(answer, "responses"), 0);
    if (*created) {
        const json_t *mark = json_object_get(first, "response_put");
        out->exists = true;
        out->epoch = out->revision;
        out->is_first = mark != NULL && json_object_get(mark, "prev_kv") == NULL;
        return true;
    }
    const json_t *range = json_object_get(first, "response_range");
    return range != NULL && read_kvs(range, out);
}

bool etcd_read_watched(const json_t *element, struct etcd_watched *out) {
    *out = (struct etcd_watched){
        .is_confirmed = json_is_true(json_object_get(element, "created")),
        .is_cancelled = json_is_true(json_object_get(element, "canceled")),
        .event_count = json_array_size(json_object_get(element, "events"))};
    return json_is_object(element);
}

bool etcd_read_event(const json_t *element, size_t i, struct etcd_key *out) {
    const json_t *event = json_array_get(json_object_get(element, "events"), i);
    const json_t *kv = json_object_get(event, "kv");
    const char *type = json_string_value(json_object_get(event, "type"));
    *out = (struct etcd_key){.exists = false};
    if (!read_number(kv, "mod_revision", &out->revision)) return false;
    if (type != NULL && strcmp(type, "DELETE") == 0) return true;
    return read_key_value(kv, out);
}
