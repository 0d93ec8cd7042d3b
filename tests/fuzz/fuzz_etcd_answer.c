/* libFuzzer target: gives any bytes to the parser of etcd's JSON answers, because the program at
 * etcd's address can be any program. Parsing the bytes in one piece and byte by byte must give
 * equal objects and equal results. On each object, the target calls all functions that read fields.
 */
#include "base/assert.h"
#include "rendezvous/etcd/answer_internal.h"
#include "rendezvous/etcd/fields_internal.h"

#include <errno.h>
#include <stdint.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define MEMBERS_MAX 8

/* What the parser returned for the whole input. */
struct result {
    size_t objects, text_len; /* number of JSON objects; sum of their lengths as text */
    int end;                  /* 0, or a negative error */
};

static void check_key(const struct etcd_key *key) {
    CR_ASSERT(key->revision > 0);
    if (!key->exists) return;
    CR_ASSERT(key->epoch > 0 && strlen(key->at.host) < CR_HOST_MAX);
    CR_ASSERT(strlen(key->lease) < sizeof(key->lease));
}

static void read_watch(const json_t *object) {
    struct etcd_watched w;
    struct etcd_key key;
    if (!etcd_read_watched(object, &w)) return;
    for (size_t i = 0; i < w.event_count; i++) {
        if (etcd_read_event(object, i, &key)) check_key(&key);
    }
}

static void read_fields(const json_t *object) {
    char lease[ETCD_LEASE_ID_MAX], token[ETCD_TOKEN_MAX];
    struct cr_endpoint members[MEMBERS_MAX];
    struct etcd_key key;
    bool created;
    if (etcd_read_lease(object, lease))
        CR_ASSERT(lease[0] != '\0' && strlen(lease) < sizeof(lease));
    if (etcd_read_token(object, token)) CR_ASSERT(strpbrk(token, "\r\n ") == NULL);
    CR_ASSERT(etcd_read_members(object, false, members, MEMBERS_MAX) <= MEMBERS_MAX);
    CR_ASSERT(etcd_read_members(object, true, members, MEMBERS_MAX) <= MEMBERS_MAX);
    (void) etcd_lease_lives(object);
    if (etcd_read_range(object, &key)) check_key(&key);
    if (etcd_read_claim(object, &created, &key)) check_key(&key);
    read_watch(object);
}

static int on_object(void *arg, const json_t *object) {
    struct result *r = arg;
    char *text = json_dumps(object, JSON_COMPACT | JSON_ENCODE_ANY);
    CR_ASSERT(text != NULL);
    r->objects++;
    r->text_len += strlen(text);
    free(text);
    read_fields(object);
    return 0;
}

static struct result run(int status, const char *data, size_t size, size_t piece) {
    struct result r = {0};
    struct cr_error err = {0};
    struct etcd_answer a = {.on_object = on_object, .arg = &r};
    for (size_t at = 0; at < size && r.end == 0; at += piece) {
        size_t len = piece < size - at ? piece : size - at;
        r.end = etcd_answer_receive(&a, status, data + at, len, &err);
    }
    if (r.end == 0) r.end = etcd_answer_end(&a, status, &err);
    CR_ASSERT(r.end == 0 || err.text[0] != '\0');
    CR_ASSERT(a.body.len <= ETCD_ANSWER_MAX);
    etcd_answer_done(&a);
    return r;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const char *bytes = (const char *) data;
    struct result whole = run(200, bytes, size, size > 0 ? size : 1);
    struct result single = run(200, bytes, size, 1);
    CR_ASSERT(whole.end == single.end);
    CR_ASSERT(whole.objects == single.objects && whole.text_len == single.text_len);
    CR_ASSERT(run(503, bytes, size, 7).end < 0); /* another status is always an error */
    return 0;
}
