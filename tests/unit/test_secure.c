/* Tests of rendezvous/secure without sockets: the handshake with a published test vector, the two
 * ends of a tunnel with each other and with an attacker between them, and token files. */
#include "rendezvous/secure/noise_internal.h"
#include "rendezvous/secure/primitives_internal.h"
#include "rendezvous/secure/secure.h"
#include "tests/lib/run_suite.h"

#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SECRET "0123456789abcdef0123456789abcdef"
#define OTHER  "fedcba9876543210fedcba9876543210"

static struct secure_keys keys;
static const uint8_t host_random[SECURE_KEY] = {8}, node_random[SECURE_KEY] = {16};

static void set_up(void) {
    ck_assert(primitives_exist());
    ck_assert_int_eq(secure_keys_parse(SECRET "\n", 33, &keys, NULL), 0);
}

static size_t unhex(const char *hex, uint8_t *out) {
    size_t len = strlen(hex) / 2;
    for (size_t i = 0; i < len; i++) {
        unsigned byte;
        ck_assert_int_eq(sscanf(hex + 2 * i, "%2x", &byte), 1);
        out[i] = (uint8_t) byte;
    }
    return len;
}

/* ---- the handshake: test vector of the project cacophony ---- */

static const struct {
    const char *payload, *sent;
} vector[] = {
    {"4c756477696720766f6e204d69736573",
     "ca35def5ae56cec33dc2036731ab14896bc4c75dbb07a61f879f8e3afa4c794479b962b8aff8485742ac32f905ba4"
     "5369e2465fb59e138a93d67a0d1266b6a54"},
    {"4d757272617920526f746862617264",
     "95ebc60d2b1fa672c1f46a8aa265ef51bfe38e7ccb39ec5be34069f144808843d6062704d5a9c422a8e834423f8c1"
     "feada7e8d0d910a1a2cd030fb584221e3"},
    {"462e20412e20486179656b", "e632c3763d7669067383433197a3baddf146e9e70ad4b4e9e59e0f"},
    {"4361726c204d656e676572", "64c6bee32ea91c8474bb4c21d7a700109ad45af77b29764ba5eb1e"},
    {"4a65616e2d426170746973746520536179",
     "e2fa0bed0603b62d3ccac2ecabbf3fe33f3e86514909b323361626266cb2471cc8"},
    {"457567656e2042f6686d20766f6e2042617765726b",
     "0c01dc9cec1fe4ddd692e8dd32188aa351088dc91183639a53b57aa4692b5ebdef8b8ca111"},
};

static void expect_bytes(const uint8_t *got, size_t len, const char *want) {
    uint8_t bytes[128];
    ck_assert_uint_eq(unhex(want, bytes), len);
    ck_assert_mem_eq(got, bytes, len);
}

START_TEST(the_handshake_is_that_of_the_published_vector) {
    static const char prologue[] = "John Galt";
    uint8_t psk[32], ours[32], theirs[32], text[64], sent[128], got[64];
    struct noise initiator, responder;
    struct noise_cipher from[2], at[2];
    unhex("54686973206973206d7920417573747269616e20706572737065637469766521", psk);
    unhex("893e28b9dc6ca8d611ab664754b8ceb7bac5117349a4439a6b0569da977c464a", ours);
    unhex("bbdb4cdbd309f1a1f2e1456967fe288cadd6f712d65dc7b7793d5e63da6b375b", theirs);
    noise_begin(&initiator, prologue, sizeof(prologue) - 1, psk, ours);
    noise_begin(&responder, prologue, sizeof(prologue) - 1, psk, theirs);
    size_t len = unhex(vector[0].payload, text);
    noise_write_first(&initiator, text, len, sent);
    expect_bytes(sent, len + NOISE_OVERHEAD, vector[0].sent);
    ck_assert(noise_read_first(&responder, sent, len + NOISE_OVERHEAD, got));
    ck_assert_mem_eq(got, text, len);
    len = unhex(vector[1].payload, text);
    ck_assert(noise_write_second(&responder, text, len, sent));
    expect_bytes(sent, len + NOISE_OVERHEAD, vector[1].sent);
    ck_assert(noise_read_second(&initiator, sent, len + NOISE_OVERHEAD, got));
    ck_assert_mem_eq(got, text, len);
    expect_bytes(initiator.h, 32,
                 "f4d03dc34495c95729ea6de9e1b59004b59733102488b3e24bc441e0be208eaf");
    noise_split(&initiator, &from[0], &from[1]);
    noise_split(&responder, &at[0], &at[1]);
    for (size_t i = 2; i < 6; i++) {
        len = unhex(vector[i].payload, text);
        noise_seal(&from[i % 2], text, len, sent);
        expect_bytes(sent, len + PRIMITIVE_TAG, vector[i].sent);
        ck_assert(noise_unseal(&at[i % 2], sent, len + PRIMITIVE_TAG, got));
        ck_assert_mem_eq(got, text, len);
    }
}
END_TEST

/* ---- two tunnels ---- */

static struct secure_tunnel *node_of(const char *secret, enum secure_role role, const char *id) {
    struct secure_keys own;
    uint8_t key[SECURE_KEYS_MAX][SECURE_KEY];
    ck_assert_int_eq(secure_keys_parse(secret, strlen(secret), &own, NULL), 0);
    ck_assert_uint_ge(secure_keys_for(&own, role, id, key), 1);
    return secure_tunnel_connect(role, id, key[0], node_random);
}

/* Delivers to `to` all bytes that `from` has to send. */
static void carry(struct secure_tunnel *from, struct secure_tunnel *to) {
    struct cr_buffer *out = secure_tunnel_out(from);
    secure_tunnel_receive(to, out->data, out->len);
    cr_buffer_clear(out);
}

static void expect_plain(struct secure_tunnel *c, const char *want) {
    struct cr_buffer *in = secure_tunnel_in(c);
    ck_assert_uint_eq(in->len, strlen(want));
    if (in->len > 0) ck_assert_mem_eq(in->data, want, in->len);
    cr_buffer_clear(in);
}

static void expect_failure(const struct secure_tunnel *c, enum secure_failure why) {
    ck_assert_str_eq(secure_state_name(secure_tunnel_state(c)), "FAILED");
    ck_assert_int_eq(secure_tunnel_failure(c), why);
}

static void say(struct secure_tunnel *c, const char *text) {
    ck_assert_int_eq(secure_tunnel_send(c, text, strlen(text)), 0);
}

static struct secure_tunnel *host, *node;

/* Connects `node` to `host`, both with SECRET, for the job "job". */
static void open_both(void) {
    host = secure_tunnel_accept(&keys, host_random);
    node = node_of(SECRET, SECURE_MEMBER, "job");
    carry(node, host);
    carry(host, node);
    ck_assert(secure_tunnel_is_open(node));
    ck_assert(!secure_tunnel_is_open(host)); /* the node's message may be a replayed one */
    say(node, "hello");
    carry(node, host);
    ck_assert(secure_tunnel_is_open(host));
    expect_plain(host, "hello");
}

static void free_both(void) {
    secure_tunnel_free(host);
    secure_tunnel_free(node);
}

START_TEST(ends_with_one_secret_understand_each_other) {
    open_both();
    ck_assert_int_eq(secure_tunnel_role(host), SECURE_MEMBER);
    ck_assert_str_eq(secure_tunnel_run_id(host), "job");
    say(host, "welcome");
    say(host, "!");
    carry(host, node);
    expect_plain(node, "welcome!");
    free_both();
}
END_TEST

START_TEST(bytes_may_come_one_by_one) {
    host = secure_tunnel_accept(&keys, host_random);
    node = node_of(SECRET, SECURE_OPERATOR, "");
    for (int turn = 0; turn < 3; turn++) {
        struct secure_tunnel *from = turn % 2 == 0 ? node : host;
        struct secure_tunnel *to = turn % 2 == 0 ? host : node;
        if (turn == 2) say(node, "status");
        struct cr_buffer *out = secure_tunnel_out(from);
        for (size_t i = 0; i < out->len; i++) secure_tunnel_receive(to, out->data + i, 1);
        cr_buffer_clear(out);
    }
    expect_plain(host, "status");
    ck_assert_int_eq(secure_tunnel_role(host), SECURE_OPERATOR);
    free_both();
}
END_TEST

START_TEST(long_text_is_split_into_records) {
    static char text[3 * SECURE_PLAIN_MAX];
    memset(text, 'x', sizeof(text) - 1);
    open_both();
    say(node, text);
    ck_assert_uint_eq(secure_tunnel_out(node)->len, strlen(text) + 3 * (2 + PRIMITIVE_TAG));
    carry(node, host);
    expect_plain(host, text);
    free_both();
}
END_TEST

/* Begins a handshake at a host that defers the answer: `host` is in the state AGREE. */
static void begin_deferred(void) {
    host = secure_tunnel_accept(&keys, host_random);
    secure_tunnel_defer(host);
    node = node_of(SECRET, SECURE_MEMBER, "job");
    carry(node, host);
    ck_assert_str_eq(secure_state_name(secure_tunnel_state(host)), "AGREE");
    ck_assert_uint_eq(secure_tunnel_out(host)->len, 0);
}

START_TEST(an_answer_may_be_computed_later) {
    begin_deferred();
    secure_tunnel_agree(host);
    ck_assert_str_eq(secure_state_name(secure_tunnel_state(host)), "AGREE");
    secure_tunnel_agreed(host);
    carry(host, node);
    ck_assert(secure_tunnel_is_open(node));
    say(node, "hello");
    carry(node, host);
    ck_assert(secure_tunnel_is_open(host));
    expect_plain(host, "hello");
    free_both();
}
END_TEST

/* A node sends nothing before it has the answer, so such bytes are those of an attacker. */
START_TEST(bytes_before_the_deferred_answer_open_nothing) {
    static const char bytes[2048] = {0, 20};
    begin_deferred();
    secure_tunnel_receive(host, bytes, 100);
    secure_tunnel_agree(host);
    secure_tunnel_agreed(host);
    expect_failure(host, SECURE_REPLAY);
    expect_plain(host, "");
    free_both();
    begin_deferred();
    secure_tunnel_receive(host, bytes, sizeof(bytes)); /* fails while the answer is computed */
    expect_failure(host, SECURE_STRANGE);
    secure_tunnel_agree(host);
    secure_tunnel_agreed(host);
    expect_failure(host, SECURE_STRANGE);
    ck_assert_uint_eq(secure_tunnel_out(host)->len, 0);
    free_both();
}
END_TEST

/* ---- strangers and attackers ---- */

/* Connects `stranger`, which has another key, to a host with SECRET. Both ends must notice that the
 * keys differ. */
static void expect_wrong_key(struct secure_tunnel *stranger) {
    host = secure_tunnel_accept(&keys, host_random);
    node = stranger;
    carry(node, host);
    expect_failure(host, SECURE_WRONG_KEY);
    carry(host, node);
    expect_failure(node, SECURE_WRONG_KEY);
    free_both();
}

START_TEST(another_secret_is_refused) { expect_wrong_key(node_of(OTHER, SECURE_MEMBER, "job")); }
END_TEST

/* Returns a line for a token file: the key of one role in one job, derived from SECRET. */
static const char *derived(enum secure_role role, const char *id) {
    static struct cr_buffer line;
    cr_buffer_clear(&line);
    ck_assert_int_eq(secure_key_write(&keys, role, id, &line), 0);
    return line.data;
}

/* Changes the role and the last byte of the run id in the first message of `c`, so that they no
 * longer match the key of `c`. */
static void claim(struct secure_tunnel *c, enum secure_role role, char last_of_id) {
    struct cr_buffer *out = secure_tunnel_out(c);
    out->data[9] = (char) role;
    out->data[12 + 2] = last_of_id;
}

START_TEST(the_key_of_another_job_or_role_is_refused) {
    struct secure_tunnel *c = node_of(derived(SECURE_MEMBER, "joa"), SECURE_MEMBER, "joa");
    claim(c, SECURE_MEMBER, 'b');
    expect_wrong_key(c);
    c = node_of(derived(SECURE_MEMBER, "job"), SECURE_MEMBER, "job");
    claim(c, SECURE_OPERATOR, 'b');
    expect_wrong_key(c);
}
END_TEST

START_TEST(a_derived_key_opens_its_own_job) {
    host = secure_tunnel_accept(&keys, host_random);
    node = node_of(derived(SECURE_MEMBER, "job"), SECURE_MEMBER, "job");
    carry(node, host);
    carry(host, node);
    ck_assert(secure_tunnel_is_open(node));
    free_both();
}
END_TEST

START_TEST(a_host_with_the_old_secret_second_accepts_both) {
    static const char text[] = "# new, old\n" OTHER "\n\n  " SECRET "  \n";
    ck_assert_int_eq(secure_keys_parse(text, sizeof(text) - 1, &keys, NULL), 0);
    ck_assert_uint_eq(keys.count, 2);
    open_both();
    free_both();
    host = secure_tunnel_accept(&keys, host_random);
    node = node_of(OTHER, SECURE_MEMBER, "job");
    carry(node, host);
    carry(host, node);
    ck_assert(secure_tunnel_is_open(node));
    free_both();
}
END_TEST

START_TEST(a_replayed_connection_gets_nothing) {
    struct cr_buffer recorded = {0};
    host = secure_tunnel_accept(&keys, host_random);
    node = node_of(SECRET, SECURE_MEMBER, "job");
    struct cr_buffer *out = secure_tunnel_out(node);
    (void) cr_buffer_append(&recorded, out->data, out->len);
    carry(node, host);
    carry(host, node);
    say(node, "hello");
    (void) cr_buffer_append(&recorded, out->data, out->len);
    static const uint8_t fresh[SECURE_KEY] = {24};
    struct secure_tunnel *again = secure_tunnel_accept(&keys, fresh);
    secure_tunnel_receive(again, recorded.data, recorded.len);
    expect_failure(again, SECURE_REPLAY);
    expect_plain(again, "");
    secure_tunnel_free(again);
    cr_buffer_done(&recorded);
    free_both();
}
END_TEST

START_TEST(a_record_is_accepted_once_and_in_its_place) {
    open_both();
    say(node, "one");
    struct cr_buffer *out = secure_tunnel_out(node);
    size_t first = out->len;
    say(node, "two");
    struct cr_buffer copy = {0};
    (void) cr_buffer_append(&copy, out->data, out->len);
    secure_tunnel_receive(host, copy.data, first);
    expect_plain(host, "one");
    secure_tunnel_receive(host, copy.data, first); /* again */
    expect_failure(host, SECURE_CHANGED);
    expect_plain(host, "");
    free_both();
    open_both();
    secure_tunnel_receive(host, copy.data + first, copy.len - first); /* the second one first */
    expect_failure(host, SECURE_CHANGED);
    cr_buffer_done(&copy);
    free_both();
}
END_TEST

START_TEST(a_record_is_not_accepted_by_its_sender) {
    open_both();
    say(node, "one");
    struct cr_buffer *out = secure_tunnel_out(node);
    secure_tunnel_receive(node, out->data, out->len);
    expect_failure(node, SECURE_CHANGED);
    expect_plain(node, "");
    free_both();
}
END_TEST

/* If any byte of the two handshake messages or of a record is changed, the receiver yields no plain
 * text. */
START_TEST(any_changed_byte_is_noticed) {
    for (size_t at = 0; at < 500; at++) {
        host = secure_tunnel_accept(&keys, host_random);
        node = node_of(SECRET, SECURE_MEMBER, "job");
        size_t passed = 0;
        for (int turn = 0; turn < 3; turn++) {
            struct secure_tunnel *from = turn % 2 == 0 ? node : host;
            struct secure_tunnel *to = turn % 2 == 0 ? host : node;
            if (turn == 2 && secure_tunnel_is_open(node)) say(node, "hello");
            struct cr_buffer *out = secure_tunnel_out(from);
            if (at >= passed && at < passed + out->len) out->data[at - passed] ^= 1;
            passed += out->len;
            secure_tunnel_receive(to, out->data, out->len);
            cr_buffer_clear(out);
        }
        expect_plain(host, at < passed ? "" : "hello");
        free_both();
        if (at >= passed) return;
    }
    ck_abort_msg("the messages are longer than expected");
}
END_TEST

START_TEST(a_giant_record_is_refused_before_it_has_come) {
    open_both();
    secure_tunnel_receive(host, "\xff\xff", 2);
    expect_failure(host, SECURE_CHANGED);
    free_both();
}
END_TEST

START_TEST(ends_without_a_common_protocol_name_the_reason) {
    host = secure_tunnel_accept(NULL, NULL); /* the host is plain, the node is not */
    node = node_of(SECRET, SECURE_MEMBER, "job");
    carry(node, host);
    expect_failure(host, SECURE_NO_SECRET);
    carry(host, node);
    expect_failure(node, SECURE_NO_SECRET);
    free_both();
    host = secure_tunnel_accept(&keys, host_random); /* the node is plain, the host is not */
    secure_tunnel_receive(host, "CRUNrdzv and HELLO", 18);
    expect_failure(host, SECURE_IS_PLAIN);
    expect_plain(host, "");
    secure_tunnel_free(host);
    host = secure_tunnel_accept(NULL, NULL); /* both are plain */
    secure_tunnel_receive(host, "CRUN", 4);
    secure_tunnel_receive(host, "rdzv and HELLO", 14);
    expect_plain(host, "CRUNrdzv and HELLO");
    secure_tunnel_free(host);
    node = node_of(SECRET, SECURE_MEMBER, "job");
    secure_tunnel_receive(node, "HTTP/1.1 400 Bad Request", 24);
    expect_failure(node, SECURE_STRANGE);
    ck_assert_mem_eq(secure_tunnel_raw(node)->data, "HTTP/", 5);
    secure_tunnel_free(node);
}
END_TEST

/* A coordinator with 100,000 members has no room for the empty buffers of idle connections. */
START_TEST(an_idle_connection_keeps_no_memory_for_received_bytes) {
    host = secure_tunnel_accept(NULL, NULL);
    secure_tunnel_receive(host, "CRUN", 4);
    secure_tunnel_receive(host, "rdzv", 4);
    expect_plain(host, "CRUNrdzv");
    secure_tunnel_receive(host, "HELLO", 5);
    expect_plain(host, "HELLO");
    ck_assert_uint_eq(secure_tunnel_raw(host)->cap, 0);
    secure_tunnel_free(host);
    open_both();
    ck_assert_uint_eq(secure_tunnel_raw(host)->cap, 0);
    free_both();
}
END_TEST

/* ---- credentials ---- */

static int taken; /* number of the newest credential that was read */

/* A voucher without a daemon: a credential is the number of a secret, and is read once. */
static int make_credential(const uint8_t secret[SECURE_KEY], char out[SECURE_CREDENTIAL_MAX],
                           struct cr_error *err) {
    (void) err;
    (void) snprintf(out, SECURE_CREDENTIAL_MAX, "credential %d", secret[0]);
    return 0;
}

static int read_credential(const char *credential, uint8_t secret[SECURE_KEY],
                           struct cr_error *err) {
    int number = 0;
    if (sscanf(credential, "credential %d", &number) != 1 || number == taken) {
        return cr_fail(err, -EACCES, "repeated");
    }
    taken = number;
    memset(secret, 0, SECURE_KEY);
    secret[0] = (uint8_t) number;
    return 0;
}

static const struct secure_voucher voucher = {.make = make_credential, .read = read_credential};
static const struct secure_keys vouching = {.voucher = &voucher};

static struct secure_tunnel *vouched_node(uint8_t number, const char *run_id) {
    uint8_t secret[SECURE_KEY] = {number};
    char credential[SECURE_CREDENTIAL_MAX];
    ck_assert_int_eq(voucher.make(secret, credential, NULL), 0);
    return secure_tunnel_vouch(SECURE_MEMBER, run_id, secret, credential, node_random);
}

static void open_vouched(uint8_t number) {
    host = secure_tunnel_accept(&vouching, host_random);
    node = vouched_node(number, "job");
}

START_TEST(a_credential_opens_a_tunnel) {
    open_vouched(1);
    struct cr_buffer *out = secure_tunnel_out(node);
    for (size_t i = 0; i < out->len; i++) secure_tunnel_receive(host, out->data + i, 1);
    cr_buffer_clear(out);
    carry(host, node);
    say(node, "hello");
    carry(node, host);
    expect_plain(host, "hello");
    ck_assert(secure_tunnel_is_open(host) && secure_tunnel_role(host) == SECURE_MEMBER);
    ck_assert_str_eq(secure_tunnel_run_id(host), "job");
    say(host, "welcome");
    carry(host, node);
    expect_plain(node, "welcome");
    free_both();
}
END_TEST

START_TEST(a_repeated_credential_is_refused_with_the_reason) {
    open_vouched(2);
    carry(node, host);
    free_both();
    open_vouched(2);
    carry(node, host);
    expect_failure(host, SECURE_BAD_CREDENTIAL);
    ck_assert_str_eq(secure_tunnel_detail(host), "repeated");
    carry(host, node);
    expect_failure(node, SECURE_BAD_CREDENTIAL);
    free_both();
}
END_TEST

/* The daemon that reads credentials may be stopped, so the loop of a coordinator must not wait for
 * it: secure_tunnel_receive() leaves the credential to secure_tunnel_agree(), which another thread
 * calls. */
START_TEST(a_deferred_credential_is_read_by_the_thread_that_agrees) {
    taken = 0;
    open_vouched(6);
    secure_tunnel_defer(host);
    carry(node, host);
    ck_assert_str_eq(secure_state_name(secure_tunnel_state(host)), "AGREE");
    ck_assert_int_eq(taken, 0);
    secure_tunnel_agree(host);
    ck_assert_int_eq(taken, 6);
    secure_tunnel_agreed(host);
    carry(host, node);
    say(node, "hello");
    carry(node, host);
    expect_plain(host, "hello");
    free_both();
    open_vouched(6); /* the voucher refuses a repeated credential */
    secure_tunnel_defer(host);
    carry(node, host);
    secure_tunnel_agree(host);
    ck_assert_str_eq(secure_tunnel_detail(host), "");
    secure_tunnel_agreed(host);
    expect_failure(host, SECURE_BAD_CREDENTIAL);
    ck_assert_str_eq(secure_tunnel_detail(host), "repeated");
    free_both();
}
END_TEST

/* Whoever is on the way can replace each byte of the head, and of the handshake message. */
START_TEST(a_changed_credential_or_head_opens_nothing) {
    open_vouched(3);
    size_t len = secure_tunnel_out(node)->len;
    free_both();
    for (size_t at = 0; at < len; at++) {
        taken = 0;
        open_vouched(4);
        secure_tunnel_out(node)->data[at] ^= 1;
        carry(node, host);
        ck_assert(!secure_tunnel_is_open(host));
        ck_assert(secure_tunnel_state(host) != SECURE_CONFIRM);
        free_both();
    }
}
END_TEST

START_TEST(an_end_with_munge_and_one_without_name_the_reason) {
    taken = 0;
    host = secure_tunnel_accept(&vouching, host_random);
    node = node_of(SECRET, SECURE_MEMBER, "job");
    carry(node, host);
    expect_failure(host, SECURE_ONLY_MUNGE);
    carry(host, node);
    expect_failure(node, SECURE_ONLY_MUNGE);
    free_both();
    for (int i = 0; i < 2; i++) { /* a coordinator with a token file, and an open one */
        host = secure_tunnel_accept(i == 0 ? &keys : NULL, host_random);
        node = vouched_node(5, "job");
        carry(node, host);
        expect_failure(host, SECURE_NO_MUNGE);
        carry(host, node);
        expect_failure(node, SECURE_NO_MUNGE);
        free_both();
    }
    host = secure_tunnel_accept(&vouching, host_random);
    secure_tunnel_receive(host, "CRUNrdzv and HELLO", 18);
    expect_failure(host, SECURE_IS_PLAIN);
    secure_tunnel_free(host);
    ck_assert_int_eq(taken, 0);
}
END_TEST

START_TEST(a_giant_credential_is_refused_before_it_has_come) {
    host = secure_tunnel_accept(&vouching, host_random);
    secure_tunnel_receive(host, "CRUNsec1\2\1\0\3job\xff\xff", 17);
    expect_failure(host, SECURE_STRANGE);
    secure_tunnel_free(host);
    host = secure_tunnel_accept(&vouching, host_random);
    secure_tunnel_receive(host, "CRUNsec1\2\1\0\3job\0\0", 17);
    expect_failure(host, SECURE_STRANGE);
    secure_tunnel_free(host);
}
END_TEST

/* ---- token files ---- */

static void expect_parse_error(const char *text, const char *want) {
    struct secure_keys out;
    struct cr_error err = {0};
    ck_assert_int_eq(secure_keys_parse(text, strlen(text), &out, &err), -EINVAL);
    ck_assert_msg(strstr(err.text, want) != NULL, "'%s' is not in '%s'", want, err.text);
    ck_assert_ptr_null(strstr(err.text, "hunter2"));
}

START_TEST(a_weak_or_malformed_secret_is_refused_and_not_shown) {
    expect_parse_error("", "it has no secret");
    expect_parse_error("# only a comment\n", "it has no secret");
    expect_parse_error("# one\nhunter2\n", "line 2: a secret needs at least 32 characters");
    expect_parse_error("crun-key:member:hunter2:job", "line 1: a derived key has the form");
    expect_parse_error(SECRET "\n" SECRET "\n" SECRET "\n" SECRET "\n" SECRET "\n" SECRET "\n"
                       SECRET "\n" SECRET "\n" SECRET "\n", "line 9: there are more than 8");
}
END_TEST

START_TEST(operators_have_keys_of_their_own) {
    struct secure_keys own;
    ck_assert_str_eq(secure_keys_operates(&keys), "");
    const char *line = derived(SECURE_MEMBER, "job");
    ck_assert_int_eq(secure_keys_parse(line, strlen(line), &own, NULL), 0);
    ck_assert_ptr_null(secure_keys_operates(&own));
    line = derived(SECURE_OPERATOR, "job");
    ck_assert_int_eq(secure_keys_parse(line, strlen(line), &own, NULL), 0);
    ck_assert_str_eq(secure_keys_operates(&own), "job");
}
END_TEST

static char path[64];

static void write_file(const char *text, mode_t mode) {
    (void) unlink(path);
    FILE *f = fopen(path, "w");
    ck_assert_ptr_nonnull(f);
    ck_assert_int_ge(fputs(text, f), 0);
    ck_assert_int_eq(fclose(f), 0);
    ck_assert_int_eq(chmod(path, mode), 0);
}

START_TEST(a_file_that_others_can_read_is_refused) {
    struct secure_ring *ring;
    struct cr_error err = {0};
    (void) snprintf(path, sizeof(path), "/tmp/crun_test_secure.%d", (int) getpid());
    write_file(SECRET, 0644);
    ck_assert_int_eq(secure_ring_open(path, &ring, &err), -EACCES);
    ck_assert_ptr_nonnull(strstr(err.text, "chmod 600"));
    write_file(SECRET, 0600);
    ck_assert_int_eq(secure_ring_open(path, &ring, &err), 0);
    secure_ring_close(ring);
    (void) unlink(path);
}
END_TEST

START_TEST(a_changed_file_is_read_again_and_a_broken_one_is_not_used) {
    struct secure_ring *ring;
    uint8_t first[SECURE_KEY], second[SECURE_KEY], again[SECURE_KEY];
    (void) snprintf(path, sizeof(path), "/tmp/crun_test_secure.%d", (int) getpid());
    write_file(SECRET, 0600);
    ck_assert_int_eq(secure_ring_open(path, &ring, NULL), 0);
    ck_assert_int_eq(secure_ring_choose(ring, SECURE_MEMBER, "job", first, NULL), 0);
    write_file(OTHER "\n" SECRET "\n", 0600);
    ck_assert_int_eq(secure_ring_choose(ring, SECURE_MEMBER, "job", second, NULL), 0);
    ck_assert_mem_ne(first, second, SECURE_KEY);
    secure_ring_refused(ring); /* the coordinator has only the old one */
    ck_assert_int_eq(secure_ring_choose(ring, SECURE_MEMBER, "job", again, NULL), 0);
    ck_assert_mem_eq(first, again, SECURE_KEY);
    write_file("short", 0600);
    ck_assert_uint_eq(secure_ring_keys(ring)->count, 2);
    (void) unlink(path);
    ck_assert_uint_eq(secure_ring_keys(ring)->count, 2);
    secure_ring_close(ring);
}
END_TEST

int main(void) {
    /* initializes libsodium; outside of tests, secure_ring_open() does this */
    if (!primitives_exist()) return 1;
    Suite *suite = suite_create("secure");
    TCase *wire = tcase_create("tunnel"), *files = tcase_create("token_file");
    tcase_add_checked_fixture(wire, set_up, NULL);
    tcase_add_test(wire, the_handshake_is_that_of_the_published_vector);
    tcase_add_test(wire, ends_with_one_secret_understand_each_other);
    tcase_add_test(wire, bytes_may_come_one_by_one);
    tcase_add_test(wire, an_answer_may_be_computed_later);
    tcase_add_test(wire, bytes_before_the_deferred_answer_open_nothing);
    tcase_add_test(wire, long_text_is_split_into_records);
    tcase_add_test(wire, another_secret_is_refused);
    tcase_add_test(wire, the_key_of_another_job_or_role_is_refused);
    tcase_add_test(wire, a_derived_key_opens_its_own_job);
    tcase_add_test(wire, a_host_with_the_old_secret_second_accepts_both);
    tcase_add_test(wire, a_replayed_connection_gets_nothing);
    tcase_add_test(wire, a_record_is_accepted_once_and_in_its_place);
    tcase_add_test(wire, a_record_is_not_accepted_by_its_sender);
    tcase_add_test(wire, any_changed_byte_is_noticed);
    tcase_add_test(wire, a_giant_record_is_refused_before_it_has_come);
    tcase_add_test(wire, ends_without_a_common_protocol_name_the_reason);
    tcase_add_test(wire, an_idle_connection_keeps_no_memory_for_received_bytes);
    tcase_add_test(wire, a_credential_opens_a_tunnel);
    tcase_add_test(wire, a_deferred_credential_is_read_by_the_thread_that_agrees);
    tcase_add_test(wire, a_repeated_credential_is_refused_with_the_reason);
    tcase_add_test(wire, a_changed_credential_or_head_opens_nothing);
    tcase_add_test(wire, an_end_with_munge_and_one_without_name_the_reason);
    tcase_add_test(wire, a_giant_credential_is_refused_before_it_has_come);
    tcase_add_checked_fixture(files, set_up, NULL);
    tcase_add_test(files, a_weak_or_malformed_secret_is_refused_and_not_shown);
    tcase_add_test(files, operators_have_keys_of_their_own);
    tcase_add_test(files, a_file_that_others_can_read_is_refused);
    tcase_add_test(files, a_changed_file_is_read_again_and_a_broken_one_is_not_used);
    suite_add_tcase(suite, wire);
    suite_add_tcase(suite, files);
    return run_suite(suite);
}
