/* Reads the fields of etcd's JSON answers: see etcd_fields_internal.h. */
#include "rendezvous/way/etcd_fields_internal.h"

#include "base/memory.h"
#include "base/parse.h"

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

/* ---- leases ---- */

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

static bool read_url(const char *url, struct cr_endpoint *out) {
    return url != NULL && strncmp(url, "http://", 7) == 0 &&
           cr_endpoint_parse(url + 7, ETCD_PORT, out, NULL) == 0;
}

size_t etcd_read_members(const json_t *answer, struct cr_endpoint *out, size_t room) {
    const json_t *list = json_object_get(answer, "members");
    size_t n = 0;
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *urls = json_object_get(json_array_get(list, i), "clientURLs");
        for (size_t k = 0; k < json_array_size(urls) && n < room; k++) {
            if (read_url(json_string_value(json_array_get(urls, k)), &out[n])) n++;
        }
    }
    return n;
}

/* ---- leaders ---- */

bool etcd_read_leader(const json_t *answer, struct etcd_leader *out) {
    const json_t *kv = json_object_get(answer, "kv");
    const char *value = json_string_value(json_object_get(kv, "value"));
    const char *revision = json_string_value(json_object_get(kv, "create_revision"));
    char text[CR_HOST_MAX + 16];
    int64_t epoch;
    if (value == NULL || revision == NULL || unbase64(value, text, sizeof(text)) < 0) return false;
    if (cr_parse_i64(revision, 1, INT64_MAX, &epoch) < 0) return false;
    if (cr_endpoint_parse(text, 0, &out->at, NULL) < 0) return false;
    out->epoch = (uint64_t) epoch;
    (void) copy_id(json_string_value(json_object_get(kv, "lease")), out->lease);
    return true;
}
