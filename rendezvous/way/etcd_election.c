/* Facts (a lease, calls under way) and one function that walks from them to what is wanted, advance().
 * Five calls: member list (once), lease grant, keep-alive (every third of the lease), campaign (answered
 * when we lead; we learn it from observe, like everybody) and observe (a stream of leaders). When a member of
 * etcd does not answer, all calls move to the next one. */
#include "rendezvous/way/etcd_election.h"

#include "base/buffer.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/parse.h"
#include "rendezvous/coordinator/coordinator.h"
#include "rendezvous/way/etcd_call.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MEMBERS_MAX  8
#define RETRY_MS     200
#define GOODBYE_MS   1000
#define PREFIX       "crun/rendezvous/"

/* C(name, path) */
#define CALLS(C)                                                                                   \
    C(MEMBERS, "/v3/cluster/member/list") C(GRANT, "/v3/lease/grant")                              \
    C(KEEPALIVE, "/v3/lease/keepalive") C(CAMPAIGN, "/v3/election/campaign")                       \
    C(OBSERVE, "/v3/election/observe") C(REVOKE, "/v3/lease/revoke")

enum call_kind {
#define C(name, path) CALL_##name,
    CALLS(C)
#undef C
    CALL_COUNT
};
static const char *const call_paths[] = {
#define C(name, path) path,
    CALLS(C)
#undef C
};

struct slot {
    struct etcd_election *election;
    enum call_kind kind;
    struct etcd_call *call; /* NULL: not under way */
    int64_t sent_ms;
};

struct etcd_election {
    uv_loop_t *loop;
    const struct etcd_election_events *events;
    void *arg;
    char *name; /* base64 */
    char own_addr[RDZV_ADDR_MAX];
    uint16_t own_port;

    struct cr_endpoint members[MEMBERS_MAX];
    size_t member_count, current;
    int knows_members;

    char lease[24]; /* decimal, "" = none */
    int64_t lease_ms, lease_until_ms;
    int campaigned, leading;
    uint64_t epoch; /* of the newest leader we know */

    struct slot slots[CALL_COUNT];
    uv_timer_t beat, retry;
    int open_handles, closing;
    char trouble[300];
    void (*on_close)(void *arg);
    void *on_close_arg;
};

static int64_t now_ms(const struct etcd_election *e) { return (int64_t) uv_now(e->loop); }
static void advance(struct etcd_election *e);

const char *etcd_election_trouble(const struct etcd_election *e) { return e->trouble; }

/* ---- base64, as JSON carries bytes ---- */

static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

static char *base64(const char *text) {
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

/* Into a string of `room` bytes; 0 or -EINVAL. */
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

/* ---- calls ---- */

static void on_answer(void *arg, const json_t *answer, const char *own_addr);
static void on_done(void *arg, const char *why);
static const struct etcd_call_events call_events = {.on_answer = on_answer, .on_done = on_done};

/* Takes the body. */
static void start(struct etcd_election *e, enum call_kind kind, json_t *body) {
    struct slot *s = &e->slots[kind];
    const struct cr_endpoint *to = &e->members[e->current];
    s->sent_ms = now_ms(e);
    s->call = body == NULL ? NULL
                           : etcd_call_start(e->loop, to->host, to->port, call_paths[kind], body,
                                             &call_events, s);
    json_decref(body);
}

static void cancel(struct etcd_election *e, enum call_kind kind) {
    struct slot *s = &e->slots[kind];
    if (s->call != NULL) etcd_call_cancel(s->call);
    s->call = NULL;
}

static void on_retry(uv_timer_t *timer) { advance(timer->data); }

static void retry_soon(struct etcd_election *e) {
    if (!e->closing && !uv_is_active((uv_handle_t *) &e->retry)) {
        (void) uv_timer_start(&e->retry, on_retry, RETRY_MS, 0);
    }
}

static void note_trouble(struct etcd_election *e, const char *why) {
    const struct cr_endpoint *at = &e->members[e->current];
    (void) snprintf(e->trouble, sizeof(e->trouble), "etcd at '%.150s:%u': %.100s", at->host, at->port, why);
    cr_debug("%s", e->trouble);
}

/* This member of etcd is of no use: everything moves to the next. */
static void move_on(struct etcd_election *e, const char *why) {
    note_trouble(e, why);
    for (int k = 0; k < CALL_COUNT; k++) cancel(e, (enum call_kind) k);
    e->current = (e->current + 1) % e->member_count;
    e->campaigned = 0;
    retry_soon(e);
}

/* ---- the lease ---- */

static void lose_lease(struct etcd_election *e, const char *why) {
    int led = e->leading;
    e->lease[0] = '\0';
    e->campaigned = e->leading = 0;
    cancel(e, CALL_CAMPAIGN);
    cancel(e, CALL_KEEPALIVE);
    retry_soon(e);
    if (led) e->events->on_deposed(e->arg, why);
}

static void got_lease(struct etcd_election *e, const json_t *answer, const char *own_addr) {
    const char *id = json_string_value(json_object_get(answer, "ID"));
    if (id == NULL || strlen(id) >= sizeof(e->lease)) return;
    (void) snprintf(e->lease, sizeof(e->lease), "%s", id);
    if (e->own_addr[0] == '\0') (void) snprintf(e->own_addr, sizeof(e->own_addr), "%s", own_addr);
    e->lease_until_ms = e->slots[CALL_GRANT].sent_ms + e->lease_ms;
    e->trouble[0] = '\0';
}

static void got_keepalive(struct etcd_election *e, const json_t *answer) {
    /* An expired lease has no time to live, and JSON leaves zeros out. */
    if (json_object_get(answer, "TTL") == NULL) lose_lease(e, "its lease in etcd has expired");
    else e->lease_until_ms = e->slots[CALL_KEEPALIVE].sent_ms + e->lease_ms;
}

static void on_beat(uv_timer_t *timer) {
    struct etcd_election *e = timer->data;
    int64_t now = now_ms(e);
    if (e->lease[0] != '\0' && now >= e->lease_until_ms - e->lease_ms / 6) {
        lose_lease(e, "etcd has not confirmed its lease");
    }
    if (e->slots[CALL_KEEPALIVE].call != NULL || e->slots[CALL_GRANT].call != NULL ||
        e->slots[CALL_MEMBERS].call != NULL) {
        move_on(e, "no answer");
    }
    if (e->lease[0] == '\0') return;
    start(e, CALL_KEEPALIVE, json_pack("{s:s}", "ID", e->lease));
}

/* ---- the cluster ---- */

static void add_member(struct etcd_election *e, const char *url) {
    struct cr_endpoint found;
    if (url == NULL || strncmp(url, "http://", 7) != 0 || e->member_count == MEMBERS_MAX) return;
    if (cr_endpoint_parse(url + 7, 2379, &found, NULL) < 0) return;
    for (size_t i = 0; i < e->member_count; i++) {
        if (strcmp(e->members[i].host, found.host) == 0 && e->members[i].port == found.port) return;
    }
    e->members[e->member_count++] = found;
}

static void got_members(struct etcd_election *e, const json_t *answer) {
    const json_t *list = json_object_get(answer, "members");
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *urls = json_object_get(json_array_get(list, i), "clientURLs");
        for (size_t k = 0; k < json_array_size(urls); k++) {
            add_member(e, json_string_value(json_array_get(urls, k)));
        }
    }
    e->knows_members = 1;
}

/* ---- leaders ---- */

static void got_leader(struct etcd_election *e, const json_t *answer) {
    const json_t *kv = json_object_get(answer, "kv");
    const char *value = json_string_value(json_object_get(kv, "value"));
    const char *revision = json_string_value(json_object_get(kv, "create_revision"));
    const char *lease = json_string_value(json_object_get(kv, "lease"));
    char text[CR_HOST_MAX + 16];
    struct cr_endpoint at;
    int64_t epoch;
    if (value == NULL || revision == NULL || unbase64(value, text, sizeof(text)) < 0 ||
        cr_parse_i64(revision, 1, INT64_MAX, &epoch) < 0 || cr_endpoint_parse(text, 0, &at, NULL) < 0) {
        note_trouble(e, "its leader's entry cannot be understood");
        return;
    }
    if ((uint64_t) epoch <= e->epoch) return;
    e->epoch = (uint64_t) epoch;
    e->leading = lease != NULL && e->lease[0] != '\0' && strcmp(lease, e->lease) == 0;
    e->events->on_leader(e->arg, at.host, at.port, e->epoch, e->leading);
}

static void on_answer(void *arg, const json_t *answer, const char *own_addr) {
    struct slot *s = arg;
    struct etcd_election *e = s->election;
    switch (s->kind) {
    case CALL_MEMBERS: got_members(e, answer); break;
    case CALL_GRANT: got_lease(e, answer, own_addr); break;
    case CALL_KEEPALIVE: got_keepalive(e, answer); break;
    case CALL_CAMPAIGN: e->campaigned = 1; break;
    case CALL_OBSERVE: got_leader(e, answer); break;
    case CALL_REVOKE:
    case CALL_COUNT: break;
    }
}

static void goodbye(struct etcd_election *e);

static void on_done(void *arg, const char *why) {
    struct slot *s = arg;
    struct etcd_election *e = s->election;
    s->call = NULL;
    if (e->closing) goodbye(e);
    else if (why != NULL) move_on(e, why);
    else if (s->kind == CALL_OBSERVE || s->kind == CALL_CAMPAIGN) retry_soon(e);
    else advance(e);
}

/* ---- from the facts to what is wanted ---- */

static json_t *campaign_body(const struct etcd_election *e) {
    char text[RDZV_ADDR_MAX + 16];
    int v6 = strchr(e->own_addr, ':') != NULL;
    (void) snprintf(text, sizeof(text), "%s%s%s:%u", v6 ? "[" : "", e->own_addr, v6 ? "]" : "", e->own_port);
    char *value = base64(text);
    json_t *body = value == NULL ? NULL
                                 : json_pack("{s:s, s:s, s:s}", "name", e->name, "lease", e->lease,
                                             "value", value);
    free(value);
    return body;
}

static void advance(struct etcd_election *e) {
    if (e->closing) return;
    int idle[CALL_COUNT];
    for (int k = 0; k < CALL_COUNT; k++) idle[k] = e->slots[k].call == NULL;
    if (!e->knows_members && idle[CALL_MEMBERS]) start(e, CALL_MEMBERS, json_object());
    if (idle[CALL_OBSERVE]) start(e, CALL_OBSERVE, json_pack("{s:s}", "name", e->name));
    if (e->lease[0] == '\0' && idle[CALL_GRANT]) {
        start(e, CALL_GRANT, json_pack("{s:I}", "TTL", (json_int_t) (e->lease_ms / 1000)));
    }
    if (e->lease[0] != '\0' && !e->campaigned && idle[CALL_CAMPAIGN]) {
        start(e, CALL_CAMPAIGN, campaign_body(e));
    }
}

static void on_first(uv_timer_t *timer) { advance(timer->data); }

struct etcd_election *etcd_election_start(uv_loop_t *loop, const struct etcd_election_options *o,
                                          const struct etcd_election_events *events, void *arg) {
    struct etcd_election *e = calloc(1, sizeof(*e));
    char *name = cr_asprintf(PREFIX "%s", o->run_id);
    if (e != NULL && name != NULL) e->name = base64(name);
    free(name);
    if (e == NULL || e->name == NULL) {
        free(e);
        return NULL;
    }
    e->loop = loop;
    e->events = events;
    e->arg = arg;
    e->members[e->member_count++] = o->endpoint;
    e->lease_ms = (o->lease_ms + 999) / 1000 * 1000;
    e->own_port = o->own_port;
    (void) snprintf(e->own_addr, sizeof(e->own_addr), "%s", o->own_addr);
    for (int k = 0; k < CALL_COUNT; k++) {
        e->slots[k] = (struct slot){.election = e, .kind = (enum call_kind) k};
    }
    (void) uv_timer_init(loop, &e->beat);
    (void) uv_timer_init(loop, &e->retry);
    e->beat.data = e->retry.data = e;
    e->open_handles = 2;
    (void) uv_timer_start(&e->beat, on_beat, (uint64_t) e->lease_ms / 3, (uint64_t) e->lease_ms / 3);
    (void) uv_timer_start(&e->retry, on_first, 0, 0);
    return e;
}

/* ---- closing ---- */

static void on_handle_closed(uv_handle_t *handle) {
    struct etcd_election *e = handle->data;
    if (--e->open_handles > 0) return;
    void (*on_close)(void *) = e->on_close;
    void *arg = e->on_close_arg;
    free(e->name);
    free(e);
    on_close(arg);
}

static void goodbye(struct etcd_election *e) {
    cancel(e, CALL_REVOKE);
    if (uv_is_closing((uv_handle_t *) &e->beat)) return;
    uv_close((uv_handle_t *) &e->beat, on_handle_closed);
    uv_close((uv_handle_t *) &e->retry, on_handle_closed);
}

static void on_goodbye_timer(uv_timer_t *timer) { goodbye(timer->data); }

void etcd_election_close(struct etcd_election *e, void (*on_close)(void *arg), void *arg) {
    e->closing = 1;
    e->on_close = on_close;
    e->on_close_arg = arg;
    for (int k = 0; k < CALL_COUNT; k++) cancel(e, (enum call_kind) k);
    (void) uv_timer_stop(&e->beat);
    if (e->lease[0] != '\0') start(e, CALL_REVOKE, json_pack("{s:s}", "ID", e->lease));
    int wait = e->slots[CALL_REVOKE].call != NULL;
    (void) uv_timer_start(&e->retry, on_goodbye_timer, wait ? GOODBYE_MS : 0, 0);
}
