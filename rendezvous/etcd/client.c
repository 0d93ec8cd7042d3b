/* Sends the election's calls to etcd and parses the answers: see etcd.h. All calls
 * go to the current member of the etcd cluster, over connections that libcurl keeps open: one for
 * the watch, and one for the other calls. etcd closes the second one if no call uses it for a
 * while. */
#include "rendezvous/etcd/etcd.h"

#include "base/buffer.h"
#include "base/log/log.h"
#include "base/memory.h"
#include "base/time/clock.h"
#include "rendezvous/dial/dial.h"
#include "rendezvous/etcd/answer_internal.h"
#include "rendezvous/etcd/election_internal.h"
#include "rendezvous/etcd/fields_internal.h"
#include "rendezvous/http/http.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GOODBYE_MS   1000
#define PASSWORD_MAX 256

static const char *const call_paths[] = {
    [ETCD_CALL_LOGIN] = "/v3/auth/authenticate", [ETCD_CALL_MEMBERS] = "/v3/cluster/member/list",
    [ETCD_CALL_READ] = "/v3/kv/range",           [ETCD_CALL_WATCH] = "/v3/watch",
    [ETCD_CALL_GRANT] = "/v3/lease/grant",       [ETCD_CALL_CLAIM] = "/v3/kv/txn",
    [ETCD_CALL_KEEP] = "/v3/lease/keepalive",    [ETCD_CALL_RELEASE] = "/v3/lease/revoke",
    [ETCD_CALL_FORGET] = "/v3/kv/deleterange"};

/* The call of one kind that is under way, if there is one. */
struct slot {
    struct etcd_client *client;
    enum etcd_call kind;
    struct http_call *call; /* NULL = no call of this kind is under way */
    struct etcd_answer answer;
    char failure[200];           /* why the call has failed; "" = it has not failed */
};

struct etcd_client {
    uv_loop_t *loop;
    const struct etcd_client_events *events;
    void *arg;
    struct rendezvous_etcd etcd; /* the endpoints are the members of the cluster */
    uint32_t current;            /* index of the current member */
    char *key, *mark;            /* the election's keys, in base64 */
    char password[PASSWORD_MAX], token[ETCD_TOKEN_MAX];
    char own_addr[RDZV_ADDR_MAX];
    uint16_t own_port;
    int64_t lease_ms;

    struct http *http;
    struct etcd_election election;
    struct slot slots[ETCD_CALL_COUNT];
    uv_timer_t timer;
    bool closing;
    unsigned closing_calls; /* while closing: number of calls that have not ended */
    char trouble[400];
    void (*on_close)(void *arg);
    void *on_close_arg;
};

static int64_t now_ms(const struct etcd_client *c) { return (int64_t) uv_now(c->loop); }

const char *etcd_client_trouble(const struct etcd_client *c) { return c->trouble; }

/* ---- the election's timer ---- */

static void on_timer(uv_timer_t *timer);

/* Every event ends with this function, which sets the timer to the election's next deadline. */
static void end_event(struct etcd_client *c) {
    if (c->closing) return;
    int64_t when_ms = etcd_election_deadline(&c->election), now = now_ms(c);
    if (when_ms == CR_FOREVER) (void) uv_timer_stop(&c->timer);
    else
        (void) uv_timer_start(&c->timer, on_timer, when_ms > now ? (uint64_t) (when_ms - now) : 0,
                              0);
}

static void on_timer(uv_timer_t *timer) {
    struct etcd_client *c = timer->data;
    etcd_election_tick(&c->election, now_ms(c));
    end_event(c);
}

/* ---- bodies of requests ---- */

/* Returns the value of the key: this node's address and port, in base64. The caller frees it. */
static char *own_value(const struct etcd_client *c) {
    char text[RDZV_ADDR_MAX + 16];
    bool is_v6 = strchr(c->own_addr, ':') != NULL;
    (void) snprintf(text, sizeof(text), "%s%s%s:%u", is_v6 ? "[" : "", c->own_addr,
                    is_v6 ? "]" : "", c->own_port);
    return etcd_base64(text);
}

/* Returns the body of CLAIM, or NULL when memory is short. CLAIM is a transaction: if the key does
 * not exist (its create_revision is 0), etcd creates it under this node's lease; if it exists, etcd
 * returns it. When etcd creates the key, it also writes the mark (key_internal.h), and returns the
 * old value of the mark, if it had one. */
static json_t *claim_body(const struct etcd_client *c) {
    CR_AUTO_FREE char *value = own_value(c);
    if (value == NULL) return NULL;
    return json_pack("{s:[{s:s, s:s, s:s, s:s}], s:[{s:{s:s, s:s, s:b}}, {s:{s:s, s:s, s:s}}], "
                     "s:[{s:{s:s}}]}",
                     "compare", "key", c->key, "target", "CREATE", "result", "EQUAL",
                     "create_revision", "0",
                     "success", "request_put", "key", c->mark, "value", value, "prev_kv", 1,
                     "request_put", "key", c->key, "value", value, "lease", c->election.lease,
                     "failure", "request_range", "key", c->key);
}

static json_t *watch_body(const struct etcd_client *c) {
    char revision[24];
    (void) snprintf(revision, sizeof(revision), "%llu",
                    (unsigned long long) c->election.watch_from);
    return json_pack("{s:{s:s, s:s}}", "create_request", "key", c->key, "start_revision", revision);
}

/* Returns the JSON body of a call, or NULL when memory is short. */
static json_t *body_of(const struct etcd_client *c, enum etcd_call call) {
    switch (call) {
    case ETCD_CALL_LOGIN:
        return json_pack("{s:s, s:s}", "name", c->etcd.user, "password", c->password);
    case ETCD_CALL_READ: return json_pack("{s:s}", "key", c->key);
    case ETCD_CALL_WATCH: return watch_body(c);
    case ETCD_CALL_GRANT: return json_pack("{s:I}", "TTL", (json_int_t) (c->lease_ms / 1000));
    case ETCD_CALL_CLAIM: return claim_body(c);
    case ETCD_CALL_KEEP: return json_pack("{s:s}", "ID", c->election.lease);
    case ETCD_CALL_RELEASE: return json_pack("{s:s}", "ID", c->election.released);
    case ETCD_CALL_FORGET: return json_pack("{s:s}", "key", c->mark);
    case ETCD_CALL_MEMBERS:
    case ETCD_CALL_COUNT: break;
    }
    return json_object();
}

/* ---- the election's actions ---- */

static void on_body(void *arg, int status, const char *data, size_t len);
static void on_done(void *arg, int status, const char *why);
static const struct http_events http_events = {.on_body = on_body, .on_done = on_done};

static void do_cancel(void *arg, enum etcd_call kind) {
    struct slot *s = &((struct etcd_client *) arg)->slots[kind];
    if (s->call != NULL) http_cancel(s->call);
    s->call = NULL;
}

/* Starts a call. If memory is short, nothing is sent, and the election gets no answer. The election
 * then does what it does when an etcd server does not answer within the time limit of the call. */
static void do_start(void *arg, enum etcd_call kind) {
    struct etcd_client *c = arg;
    struct slot *s = &c->slots[kind];
    json_auto_t *body = body_of(c, kind);
    CR_AUTO_FREE char *text = body != NULL ? json_dumps(body, JSON_COMPACT) : NULL;
    s->failure[0] = '\0';
    cr_buffer_clear(&s->answer.body);
    s->call = text == NULL ? NULL
                           : http_post(c->http, &c->etcd.endpoints[c->current],
                                       call_paths[kind],
                                       kind == ETCD_CALL_LOGIN ? "" : c->token, text,
                                       &http_events, s);
}

static void do_next_member(void *arg) {
    struct etcd_client *c = arg;
    c->current = (c->current + 1) % c->etcd.endpoint_count;
}

static void do_leader(void *arg, const struct etcd_key *key, bool is_us) {
    struct etcd_client *c = arg;
    if (!c->closing) c->events->on_leader(c->arg, key, is_us);
}

static void do_vacant(void *arg) {
    struct etcd_client *c = arg;
    if (!c->closing) c->events->on_vacant(c->arg);
}

static void do_right(void *arg, int64_t until_ms) {
    struct etcd_client *c = arg;
    if (!c->closing) c->events->on_right(c->arg, until_ms);
}

static void do_log(void *arg, enum cr_log_level level, const char *text) {
    (void) arg;
    cr_log(level, "%s", text);
}

static const struct etcd_election_actions election_actions = {
    .start = do_start, .cancel = do_cancel, .next_member = do_next_member,
    .on_leader = do_leader, .on_vacant = do_vacant, .on_right = do_right, .log = do_log};

/* ---- answers ---- */

static void set_trouble(struct etcd_client *c, const char *why) {
    const struct cr_endpoint *at = &c->etcd.endpoints[c->current];
    (void) snprintf(c->trouble, sizeof(c->trouble), "etcd at '%.150s:%u': %.200s", at->host,
                    at->port, why);
}

static bool is_loopback(const char *host) {
    return strcmp(host, "localhost") == 0 || addr_is_loopback(host);
}

/* Adds the cluster's members in the answer that are not known yet. A loopback address of a member
 * is of use only on the member's own host. So loopback addresses are left out, unless the first
 * endpoint, by which this node has reached etcd, is one. */
static void add_members(struct etcd_client *c, const json_t *answer) {
    struct cr_endpoint found[RENDEZVOUS_ETCD_MEMBERS_MAX];
    size_t n = etcd_read_members(answer, c->etcd.https, found, RENDEZVOUS_ETCD_MEMBERS_MAX);
    bool is_local = is_loopback(c->etcd.endpoints[0].host);
    for (size_t i = 0; i < n; i++) {
        bool is_known = is_loopback(found[i].host) && !is_local;
        for (uint32_t k = 0; k < c->etcd.endpoint_count; k++) {
            const struct cr_endpoint *m = &c->etcd.endpoints[k];
            if (strcmp(m->host, found[i].host) == 0 && m->port == found[i].port) is_known = true;
        }
        if (is_known || c->etcd.endpoint_count == RENDEZVOUS_ETCD_MEMBERS_MAX) continue;
        c->etcd.endpoints[c->etcd.endpoint_count++] = found[i];
    }
}

/* Chooses the address that this node publishes, if the user gave none. It is `own_end`, the address
 * of this node's end of the connection to etcd. But if `own_end` is a loopback address, because
 * etcd runs on this machine, it is the address at which other machines reach this one. */
static void choose_own_addr(struct etcd_client *c, const char *own_end) {
    if (c->own_addr[0] != '\0') return;
    if (own_end[0] == '\0' || is_loopback(own_end)) addr_of_machine(c->own_addr);
    else (void) snprintf(c->own_addr, sizeof(c->own_addr), "%s", own_end);
    cr_debug("this node publishes the address '%s' in etcd", c->own_addr);
}

static bool got_lease(struct etcd_client *c, const struct slot *s, const json_t *answer) {
    char lease[ETCD_LEASE_ID_MAX];
    if (!etcd_read_lease(answer, lease)) return false;
    choose_own_addr(c, http_own_addr(s->call));
    etcd_election_granted(&c->election, lease);
    return true;
}

static bool got_claim(struct etcd_client *c, const json_t *answer) {
    struct etcd_key key;
    bool created;
    if (!etcd_read_claim(answer, &created, &key)) return false;
    if (created) {
        (void) snprintf(key.at.host, sizeof(key.at.host), "%s", c->own_addr);
        key.at.port = c->own_port;
        memcpy(key.lease, c->election.lease, sizeof(key.lease));
    }
    etcd_election_got_key(&c->election, now_ms(c), ETCD_CALL_CLAIM, &key);
    return true;
}

static bool got_watched(struct etcd_client *c, const json_t *element) {
    struct etcd_watched w;
    struct etcd_key key;
    if (!etcd_read_watched(element, &w) || w.is_cancelled) return false;
    if (w.is_confirmed) etcd_election_watches(&c->election);
    for (size_t i = 0; i < w.event_count; i++) {
        if (!etcd_read_event(element, i, &key)) return false;
        etcd_election_got_key(&c->election, now_ms(c), ETCD_CALL_WATCH, &key);
        /* if the event has made the election cancel the watch, the other events are ignored */
        if (c->slots[ETCD_CALL_WATCH].call == NULL) return true;
    }
    return true;
}

static bool got_range(struct etcd_client *c, const json_t *answer) {
    struct etcd_key key;
    if (!etcd_read_range(answer, &key)) return false;
    etcd_election_got_key(&c->election, now_ms(c), ETCD_CALL_READ, &key);
    return true;
}

static bool got_token(struct etcd_client *c, const json_t *answer) {
    if (!etcd_read_token(answer, c->token)) return false;
    etcd_election_logged_in(&c->election);
    return true;
}

/* Passes an answer to the election. Returns false if it cannot be understood. */
static bool got_answer(struct etcd_client *c, const struct slot *s, const json_t *answer) {
    switch (s->kind) {
    case ETCD_CALL_LOGIN: return got_token(c, answer);
    case ETCD_CALL_MEMBERS:
        add_members(c, answer);
        etcd_election_found_members(&c->election);
        return true;
    case ETCD_CALL_READ: return got_range(c, answer);
    case ETCD_CALL_WATCH: return got_watched(c, answer);
    case ETCD_CALL_GRANT: return got_lease(c, s, answer);
    case ETCD_CALL_CLAIM: return got_claim(c, answer);
    case ETCD_CALL_KEEP:
        etcd_election_kept(&c->election, now_ms(c), etcd_lease_lives(answer));
        return true;
    case ETCD_CALL_RELEASE:
    case ETCD_CALL_FORGET:
    case ETCD_CALL_COUNT: break;
    }
    return true;
}

static int on_object(void *arg, const json_t *answer) {
    struct slot *s = arg;
    struct etcd_client *c = s->client;
    if (c->closing) return 0;
    if (!got_answer(c, s, answer)) {
        (void) snprintf(s->failure, sizeof(s->failure),
                        "the answer to %s cannot be understood; is it etcd 3.4 or newer?",
                        etcd_call_name(s->kind));
        return -EPROTO;
    }
    if (s->kind == ETCD_CALL_READ) c->trouble[0] = '\0';
    /* If the answer has made the election cancel this call, s->call is NULL. -ECANCELED stops the
     * parser. */
    return s->call == NULL ? -ECANCELED : 0;
}

/* ---- events of a call ---- */

static void goodbye(struct etcd_client *c);

static void end_call(struct slot *s, const char *why) {
    struct etcd_client *c = s->client;
    if (c->closing) {
        if (--c->closing_calls == 0) goodbye(c);
        return;
    }
    if (why != NULL) set_trouble(c, why);
    etcd_election_ended(&c->election, now_ms(c), s->kind, why != NULL, why != NULL ? why : "ended");
    end_event(c);
}

/* Notes in s->failure why a call has failed. `rc`, and the text in err, are what the parser has
 * returned. Does nothing if that is no error, if on_object() has already stored a text in
 * s->failure, or if the election has cancelled the call (-ECANCELED). */
static void note_failure(struct slot *s, int rc, const struct cr_error *err) {
    if (rc == 0 || rc == -ECANCELED || s->failure[0] != '\0') return;
    (void) snprintf(s->failure, sizeof(s->failure), "%.190s", err->text);
}

static void on_body(void *arg, int status, const char *data, size_t len) {
    struct slot *s = arg;
    struct cr_error err = {0};
    if (s->failure[0] != '\0') return;
    note_failure(s, etcd_answer_receive(&s->answer, status, data, len, &err), &err);
    if (s->call != NULL && s->failure[0] != '\0' && s->kind == ETCD_CALL_WATCH) {
        /* etcd may keep a watch's stream open after an error, so end the call here */
        http_cancel(s->call);
        s->call = NULL;
        end_call(s, s->failure);
    }
    end_event(s->client);
}

static void on_done(void *arg, int status, const char *why) {
    struct slot *s = arg;
    const struct http_call *ended = s->call;
    struct cr_error err = {0};
    if (why == NULL && s->failure[0] == '\0') {
        note_failure(s, etcd_answer_end(&s->answer, status, &err), &err);
    }
    if (s->call != ended) { /* because of the answer, the election has cancelled this call */
        end_event(s->client);
        return;
    }
    s->call = NULL;
    end_call(s, s->failure[0] != '\0' ? s->failure : why);
}

/* ---- the calls of the header ---- */

void etcd_client_need(struct etcd_client *c, bool needs) {
    if (c->closing) return;
    etcd_election_need(&c->election, now_ms(c), needs);
    end_event(c);
}

/* If a user is set, reads the user's password, the first line of its file. Returns 0, or a negative
 * errno and a text in err. */
static int read_password(struct etcd_client *c, struct cr_error *err) {
    const char *path = c->etcd.password_file;
    if (c->etcd.user[0] == '\0') return 0;
    FILE *file = fopen(path, "re");
    if (file == NULL) {
        return cr_fail_errno(err, "cannot read the password of etcd's user '%.60s' from '%.300s'",
                             c->etcd.user, path);
    }
    bool has_line = fgets(c->password, sizeof(c->password), file) != NULL;
    (void) fclose(file);
    c->password[strcspn(c->password, "\r\n")] = '\0';
    if (has_line && c->password[0] != '\0') return 0;
    return cr_fail(err, -EINVAL, "the file '%.300s' has no password of etcd's user '%.60s'", path,
                   c->etcd.user);
}

static int set_up(struct etcd_client *c, const struct etcd_client_options *o,
                  struct cr_error *err) {
    CR_AUTO_FREE char *key = cr_asprintf("%s%s", o->etcd->prefix, o->run_id);
    CR_AUTO_FREE char *mark = cr_asprintf("%s%s/mark", o->etcd->prefix, o->run_id);
    c->key = key != NULL ? etcd_base64(key) : NULL;
    c->mark = mark != NULL ? etcd_base64(mark) : NULL;
    if (c->key == NULL || c->mark == NULL) {
        return cr_fail(err, -ENOMEM, "start the election: out of memory");
    }
    int rc = read_password(c, err);
    if (rc < 0) return rc;
    struct http_options http = {.purpose = "the backend etcd", .https = c->etcd.https,
                                .ca_cert = c->etcd.ca_cert, .ssl_cert = c->etcd.ssl_cert,
                                .ssl_cert_key = c->etcd.ssl_cert_key};
    return http_open(c->loop, &http, &c->http, err);
}

static void client_free(struct etcd_client *c) {
    for (int k = 0; k < ETCD_CALL_COUNT; k++) etcd_answer_done(&c->slots[k].answer);
    explicit_bzero(c->password, sizeof(c->password));
    free(c->key);
    free(c->mark);
    free(c);
}

int etcd_client_open(uv_loop_t *loop, const struct etcd_client_options *o,
                     const struct etcd_client_events *events, void *arg, struct etcd_client **out,
                     struct cr_error *err) {
    struct etcd_client *c = calloc(1, sizeof(*c));
    if (c == NULL) return cr_fail(err, -ENOMEM, "start the election: out of memory");
    c->loop = loop;
    c->events = events;
    c->arg = arg;
    c->etcd = *o->etcd;
    c->own_port = o->own_port;
    c->lease_ms = (o->lease_ms + 999) / 1000 * 1000;
    (void) snprintf(c->own_addr, sizeof(c->own_addr), "%s", o->own_addr);
    for (int k = 0; k < ETCD_CALL_COUNT; k++) {
        c->slots[k] = (struct slot){.client = c, .kind = (enum etcd_call) k,
                                    .answer = {.on_object = on_object, .arg = &c->slots[k]}};
    }
    int rc = set_up(c, o, err);
    if (rc < 0) {
        client_free(c);
        return rc;
    }
    struct etcd_election_settings settings = {
        .lease_ms = c->lease_ms, .claim_delay_ms = o->claim_delay_ms,
        .has_user = c->etcd.user[0] != '\0', .finds_members = c->etcd.endpoint_count == 1,
        .seed = o->seed};
    (void) uv_timer_init(loop, &c->timer);
    c->timer.data = c;
    etcd_election_begin(&c->election, now_ms(c), &settings, &election_actions, c);
    end_event(c);
    *out = c;
    return 0;
}

/* ---- closing, in this order: RELEASE and FORGET; the connections; the timer; the memory ---- */

static void on_timer_closed(uv_handle_t *handle) {
    struct etcd_client *c = handle->data;
    void (*on_close)(void *) = c->on_close;
    void *arg = c->on_close_arg;
    client_free(c);
    on_close(arg);
}

static void on_http_closed(void *arg) {
    struct etcd_client *c = arg;
    uv_close((uv_handle_t *) &c->timer, on_timer_closed);
}

static void goodbye(struct etcd_client *c) {
    if (c->http == NULL) return;
    struct http *http = c->http;
    c->http = NULL;
    (void) uv_timer_stop(&c->timer);
    http_close(http, on_http_closed, c);
}

static void on_goodbye_timer(uv_timer_t *timer) { goodbye(timer->data); }

void etcd_client_close(struct etcd_client *c, bool is_over, void (*on_close)(void *arg),
                       void *arg) {
    c->on_close = on_close;
    c->on_close_arg = arg;
    c->closing_calls = etcd_election_close(&c->election, is_over);
    c->closing = true;
    (void) uv_timer_start(&c->timer, on_goodbye_timer, c->closing_calls > 0 ? GOODBYE_MS : 0, 0);
}
