/* libFuzzer target: the parser of etcd's HTTP and JSON answers, given any bytes, because any
 * program may answer at etcd's address. Parsing the bytes in one piece and byte by byte must give
 * equal objects and equal results. All functions that read fields run on each object. */
#include "base/assert.h"
#include "rendezvous/way/etcd_answer_internal.h"
#include "rendezvous/way/etcd_fields_internal.h"

#include <errno.h>
#include <stdint.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define MEMBERS_MAX 8

/* What the parser returned for the whole input. */
struct result {
    size_t objects, text_len; /* number of JSON objects; sum of their lengths as text */
    int end;                  /* 1: complete; 0: more is expected; negative: an error */
};

static void read_fields(const json_t *object) {
    char lease[ETCD_LEASE_ID_MAX];
    struct cr_endpoint members[MEMBERS_MAX];
    struct etcd_leader leader;
    if (etcd_read_lease(object, lease))
        CR_ASSERT(lease[0] != '\0' && strlen(lease) < sizeof(lease));
    CR_ASSERT(etcd_read_members(object, members, MEMBERS_MAX) <= MEMBERS_MAX);
    (void) etcd_lease_lives(object);
    if (!etcd_read_leader(object, &leader)) return;
    CR_ASSERT(leader.epoch > 0 && strlen(leader.at.host) < CR_HOST_MAX);
    CR_ASSERT(strlen(leader.lease) < sizeof(leader.lease));
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

static struct result run(const char *data, size_t size, size_t piece) {
    struct result r = {0};
    struct cr_error err = {0};
    struct etcd_answer a = {.on_object = on_object, .arg = &r};
    for (size_t at = 0; at < size && r.end == 0; at += piece) {
        r.end = etcd_answer_receive(&a, data + at, piece < size - at ? piece : size - at, &err);
    }
    if (r.end == 0) r.end = etcd_answer_end(&a, &err);
    CR_ASSERT(r.end == 1 || (r.end < 0 && err.text[0] != '\0'));
    CR_ASSERT(a.body.len <= ETCD_ANSWER_MAX);
    etcd_answer_done(&a);
    return r;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const char *bytes = (const char *) data;
    struct result whole = run(bytes, size, size > 0 ? size : 1), single = run(bytes, size, 1);
    CR_ASSERT(whole.end == single.end);
    CR_ASSERT(whole.objects == single.objects && whole.text_len == single.text_len);
    return 0;
}
