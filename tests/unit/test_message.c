/* Tests the codec of rendezvous messages: decoding gives the message that was encoded, however the
 * bytes are split; a wrong message gives an error that names it; random bytes cause no crash. */
#include "base/buffer.h"
#include "rendezvous/protocol/message.h"
#include "tests/lib/run_suite.h"

#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static struct rdzv_message join_message(void) {
    struct rdzv_message m = {.type = RDZV_JOIN};
    m.join = (struct rdzv_join){.host = "n1", .addr = "10.0.0.1", .pid = 77, .instance = UINT64_MAX,
                                .connection = 3, .role = "trainer", .node_rank = -1,
                                .local_world_size = 8, .rounds_seen = 5, .restarts_seen = 2,
                                .last_rank = 4, .min_nodes = 1, .max_nodes = 4,
                                .join_timeout_ms = INT64_MAX, .keep_alive_max_attempt = 3};
    return m;
}

START_TEST(a_message_comes_back_as_it_was_at_every_split) {
    struct cr_buffer b = {0};
    struct rdzv_message in = join_message(), out;
    size_t used = 9;
    ck_assert_int_eq(rdzv_message_encode(&in, RDZV_VERSION_MAX, &b), 0);
    for (size_t n = 0; n < b.len; n++) {
        ck_assert_int_eq(rdzv_message_decode(b.data, n, &out, &used, NULL), 0);
        ck_assert_uint_eq(used, 0);
    }
    ck_assert_int_eq(rdzv_message_decode(b.data, b.len, &out, &used, NULL), 0);
    ck_assert_uint_eq(used, b.len);
    ck_assert_int_eq(out.type, RDZV_JOIN);
    ck_assert_str_eq(out.join.host, "n1");
    ck_assert_str_eq(out.join.role, "trainer");
    ck_assert(out.join.instance == UINT64_MAX && out.join.pid == 77 && out.join.connection == 3);
    ck_assert_int_eq(out.join.node_rank, -1);
    ck_assert(out.join.join_timeout_ms == INT64_MAX);
    ck_assert_uint_eq(out.join.keep_alive_max_attempt, 3);
    cr_buffer_done(&b);
}
END_TEST

START_TEST(the_wire_is_big_endian_and_fixed) {
    static const unsigned char stop[] = {0, 0, 0, 15, 68, 0,   0,   0,   0, 0,
                                         0, 0, 7, 0,  4,  'w', 'h', 'y', 0};
    struct cr_buffer b = {0};
    struct rdzv_message m = {.type = RDZV_STOP};
    m.stop = (struct rdzv_stop){.round = 7, .why = "why"};
    ck_assert_int_eq(rdzv_message_encode(&m, 2, &b), 0);
    ck_assert_uint_eq(b.len, sizeof(stop));
    ck_assert_int_eq(memcmp(b.data, stop, sizeof(stop)), 0);
    cr_buffer_done(&b);
}
END_TEST

/* ROW has nine texts. If all of them have the greatest length, they do not fit into a frame. */
START_TEST(texts_that_do_not_fit_together_are_cut) {
    char longest[RDZV_TEXT_MAX];
    struct cr_buffer b = {0};
    struct rdzv_message in = {.type = RDZV_ROW}, out;
    size_t used;
    memset(longest, 'x', sizeof(longest) - 1);
    longest[sizeof(longest) - 1] = '\0';
    in.row = (struct rdzv_row){.id = 1, .ranks = longest, .pid = 2, .host = longest,
                               .state = longest, .program = longest, .kernel = longest,
                               .operation = longest, .python = longest, .native = longest,
                               .note = longest};
    ck_assert_int_eq(rdzv_message_encode(&in, RDZV_VERSION_MAX, &b), 0);
    ck_assert_uint_eq(b.len, RDZV_FRAME_MAX);
    ck_assert_int_eq(rdzv_message_decode(b.data, b.len, &out, &used, NULL), 0);
    ck_assert_uint_eq(used, b.len);
    ck_assert_str_eq(out.row.ranks, longest);
    ck_assert_str_eq(out.row.operation, longest);
    ck_assert_str_eq(out.row.note, "");
    cr_buffer_done(&b);
}
END_TEST

START_TEST(a_change_is_understood_on_both_sides) {
    static const unsigned char answer[] = {0,   0, 0, 25,  8,   0,   0,   0,   0,   0,
                                           0,   0, 3, 255, 255, 255, 255, 255, 255, 255,
                                           255, 0, 0, 0,   0,   0,   0,   1,   0};
    struct cr_buffer b = {0};
    struct rdzv_message in = {.type = RDZV_CHANGE_ANSWER}, out;
    size_t used;
    in.change_answer = (struct rdzv_change_answer){.id = 3, .step = -1, .needs_ms = 256};
    ck_assert_int_eq(rdzv_message_encode(&in, RDZV_VERSION_MAX, &b), 0);
    ck_assert_uint_eq(b.len, sizeof(answer));
    ck_assert_int_eq(memcmp(b.data, answer, sizeof(answer)), 0);
    cr_buffer_clear(&b);
    in = (struct rdzv_message){.type = RDZV_CHANGE_AT};
    in.change_at = (struct rdzv_change_at){.id = 3, .step = UINT64_MAX, .left_ms = INT64_MIN};
    ck_assert_int_eq(rdzv_message_encode(&in, RDZV_VERSION_MAX, &b), 0);
    ck_assert_int_eq(rdzv_message_decode(b.data, b.len, &out, &used, NULL), 0);
    ck_assert_int_eq(out.type, RDZV_CHANGE_AT);
    ck_assert(out.change_at.step == UINT64_MAX && out.change_at.left_ms == INT64_MIN);
    cr_buffer_done(&b);
}
END_TEST

START_TEST(long_texts_are_cut_and_null_is_empty) {
    char text[3000];
    memset(text, 'x', sizeof(text));
    text[sizeof(text) - 1] = '\0';
    struct cr_buffer b = {0};
    struct rdzv_message m = join_message(), out;
    size_t used;
    m.join.host = m.join.addr = text;
    m.join.role = NULL;
    ck_assert_int_eq(rdzv_message_encode(&m, RDZV_VERSION_MAX, &b), 0);
    ck_assert_uint_le(b.len, RDZV_FRAME_MAX);
    ck_assert_int_eq(rdzv_message_decode(b.data, b.len, &out, &used, NULL), 0);
    ck_assert_uint_eq(strlen(out.join.addr), RDZV_TEXT_MAX - 1);
    ck_assert_str_eq(out.join.role, "");
    cr_buffer_done(&b);
}
END_TEST

static void broken(const void *data, size_t len, const char *text) {
    struct rdzv_message out;
    struct cr_error err = {0};
    size_t used = 1;
    ck_assert_int_eq(rdzv_message_decode(data, len, &out, &used, &err), -EPROTO);
    ck_assert_uint_eq(used, 0);
    ck_assert_msg(strstr(err.text, text) != NULL, "'%s' does not say '%s'", err.text, text);
}

START_TEST(what_is_wrong_is_named) {
    broken("\0\0\0\0", 4, "0 bytes");
    broken("\377\377\377\377", 4, "4294967295 bytes");
    broken("\0\0\0\1\143", 5, "type 99");
    broken("\0\0\0\3\103\0\0", 7, "ROUND message (type 67): it is too short");
    broken("\0\0\0\10\4\0\0\0\0\0\0\0", 12, "SUCCEEDED message (type 4): it is too short");
    broken("\0\0\0\3\5\0\0", 7, "bad length");
    broken("\0\0\0\5\5\0\2ab", 9, "does not end");
    broken("\0\0\0\5\5\0\2\0\0", 9, "does not end"); /* the text contains a NUL */
    broken("\0\0\0\5\5\0\7ab", 9, "too short");
    broken("\0\0\0\4\5\377\377\0", 8, "bad length");
}
END_TEST

/* ---- versions, as described in docs/rendezvous.md, "Messages" ---- */

/* size in bytes of the fields that version 3 has added to JOIN: three u64, an i64, three u32 */
#define JOIN_ADDED ((size_t) 44)

START_TEST(an_old_version_gets_the_fields_that_it_knows) {
    struct cr_buffer old = {0}, new = {0};
    struct rdzv_message in = join_message(), out;
    size_t used = 0;
    in.join.incarnation = 77;
    in.join.digest = 88;
    in.join.store_port = 99;
    ck_assert_int_eq(rdzv_message_encode(&in, 2, &old), 0);
    ck_assert_int_eq(rdzv_message_encode(&in, 3, &new), 0);
    ck_assert_uint_eq(new.len, old.len + JOIN_ADDED);
    ck_assert_int_eq(memcmp(new.data + 4, old.data + 4, old.len - 4), 0);
    ck_assert_int_eq(rdzv_message_decode(old.data, old.len, &out, &used, NULL), 0);
    ck_assert_uint_eq(used, old.len);
    ck_assert_str_eq(out.join.host, "n1");
    ck_assert(out.join.incarnation == 0 && out.join.digest == 0);
    ck_assert_int_eq(rdzv_message_decode(new.data, new.len, &out, &used, NULL), 0);
    ck_assert(out.join.incarnation == 77 && out.join.digest == 88 && out.join.store_port == 99);
    cr_buffer_done(&old);
    cr_buffer_done(&new);
}
END_TEST

START_TEST(fields_of_a_later_version_are_skipped) {
    static const char succeeded[] = "\0\0\0\14\4\0\0\0\0\0\0\0\7new";
    struct rdzv_message out;
    size_t used = 0;
    ck_assert_int_eq(rdzv_message_decode(succeeded, 16, &out, &used, NULL), 0);
    ck_assert_uint_eq(used, 16);
    ck_assert(out.succeeded.round == 7);
}
END_TEST

START_TEST(a_frame_may_only_end_between_versions) {
    struct cr_buffer b = {0};
    struct rdzv_message in = join_message(), out;
    size_t used = 0;
    ck_assert_int_eq(rdzv_message_encode(&in, 3, &b), 0);
    for (unsigned cut = 1; cut < JOIN_ADDED + 8; cut++) {
        b.data[3] = (char) (b.len - 4 - cut);
        int rc = rdzv_message_decode(b.data, b.len - cut, &out, &used, NULL);
        ck_assert_int_eq(rc, cut == JOIN_ADDED ? 0 : -EPROTO);
    }
    cr_buffer_done(&b);
}
END_TEST

/* Changes each byte of a valid frame to each value. The decoder must accept or refuse the frame,
 * and must never read beyond it. */
START_TEST(flipped_bytes_do_no_harm) {
    struct cr_buffer b = {0};
    struct rdzv_message m = join_message(), out;
    size_t used;
    ck_assert_int_eq(rdzv_message_encode(&m, RDZV_VERSION_MAX, &b), 0);
    for (size_t i = 0; i < b.len; i++) {
        for (int v = 0; v < 256; v++) {
            char *copy = malloc(b.len); /* a block of exact size, so that ASan detects a read beyond
                                         * it */
            memcpy(copy, b.data, b.len);
            copy[i] = (char) v;
            int rc = rdzv_message_decode(copy, b.len, &out, &used, NULL);
            ck_assert(rc == 0 || rc == -EPROTO);
            free(copy);
        }
    }
    cr_buffer_done(&b);
}
END_TEST

int main(void) {
    Suite *s = suite_create("message");
    TCase *t = tcase_create("codec");
    tcase_set_timeout(t, 30);
    tcase_add_test(t, a_message_comes_back_as_it_was_at_every_split);
    tcase_add_test(t, the_wire_is_big_endian_and_fixed);
    tcase_add_test(t, texts_that_do_not_fit_together_are_cut);
    tcase_add_test(t, a_change_is_understood_on_both_sides);
    tcase_add_test(t, long_texts_are_cut_and_null_is_empty);
    tcase_add_test(t, what_is_wrong_is_named);
    tcase_add_test(t, an_old_version_gets_the_fields_that_it_knows);
    tcase_add_test(t, fields_of_a_later_version_are_skipped);
    tcase_add_test(t, a_frame_may_only_end_between_versions);
    tcase_add_test(t, flipped_bytes_do_no_harm);
    suite_add_tcase(s, t);
    return run_suite(s);
}
