/* Tests how a worker's place is read: from which variables, in which order of precedence, and what
 * the error names if none are set; also the place that the agent sends for the next round. */
#include "base/cleanup.h"
#include "tests/lib/run_suite.h"
#include "worker_runtime/runtime/worker_place.h"

#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Returns the value of the variable `name` in `arg`, a NULL-terminated list of "NAME=value"
 * texts. */
static const char *from_list(void *arg, const char *name) {
    const char *const *list = arg;
    size_t n = strlen(name);
    for (; *list != NULL; list++) {
        if (strncmp(*list, name, n) == 0 && (*list)[n] == '=') return *list + n + 1;
    }
    return NULL;
}

#define READ(place, err, ...)                                                                      \
    worker_place_read(from_list, (void *) (const char *[]){__VA_ARGS__, NULL}, NULL, -1, -1,       \
                      place, err)

#define ADDRESS "MASTER_ADDR=node7", "MASTER_PORT=29500"

START_TEST(torchrun_variables) {
    struct worker_place p;
    ck_assert_int_eq(READ(&p, NULL, ADDRESS, "RANK=3", "WORLD_SIZE=8", "LOCAL_RANK=1",
                          "LOCAL_WORLD_SIZE=2", "TORCHELASTIC_RESTART_COUNT=4",
                          "TORCHELASTIC_USE_AGENT_STORE=True"),
                     0);
    ck_assert_int_eq(p.rank, 3);
    ck_assert_int_eq(p.world_size, 8);
    ck_assert_int_eq(p.local_rank, 1);
    ck_assert_int_eq(p.local_world_size, 2);
    ck_assert_int_eq(p.restart_count, 4);
    ck_assert_int_eq(p.agent_hosts_store, 1);
    ck_assert_str_eq(p.master_addr, "node7");
    ck_assert_uint_eq(p.master_port, 29500);
    ck_assert_str_eq(p.source, "torchrun");
}
END_TEST

START_TEST(agent_store_must_be_exactly_True) {
    static const char *const values[] = {
        "TORCHELASTIC_USE_AGENT_STORE=true", "TORCHELASTIC_USE_AGENT_STORE=1",
        "TORCHELASTIC_USE_AGENT_STORE=False", "TORCHELASTIC_USE_AGENT_STORE="};
    for (size_t i = 0; i < 4; i++) {
        struct worker_place p;
        ck_assert_int_eq(READ(&p, NULL, ADDRESS, "RANK=0", "WORLD_SIZE=1", values[i]), 0);
        ck_assert_int_eq(p.agent_hosts_store, 0);
    }
}
END_TEST

START_TEST(a_port_that_nobody_can_reach_is_refused) {
    static const char *const ports[] = {"MASTER_PORT=0", "MASTER_PORT=65536", "MASTER_PORT=-1",
                                        "MASTER_PORT=29500x"};
    for (size_t i = 0; i < 4; i++) {
        struct worker_place p;
        struct cr_error err = {0};
        ck_assert_int_eq(READ(&p, &err, "MASTER_ADDR=node7", ports[i], "RANK=0", "WORLD_SIZE=1"),
                         -EINVAL);
        ck_assert_ptr_nonnull(strstr(err.text, "not a number from 1 to 65535"));
    }
}
END_TEST

START_TEST(other_launchers_in_order) {
    struct worker_place p;
    ck_assert_int_eq(READ(&p, NULL, ADDRESS, "SLURM_PROCID=5", "SLURM_NTASKS=6", "SLURM_LOCALID=1",
                          "SLURM_NTASKS_PER_NODE=2(x3)"),
                     0);
    ck_assert_str_eq(p.source, "Slurm");
    ck_assert_int_eq(p.rank, 5);
    ck_assert_int_eq(p.local_rank, 1);
    ck_assert_int_eq(p.local_world_size, -1); /* "2(x3)" is not a number */
    ck_assert_int_eq(
        READ(&p, NULL, ADDRESS, "SLURM_PROCID=5", "SLURM_NTASKS=6", "PMI_RANK=1", "PMI_SIZE=2"), 0);
    ck_assert_str_eq(p.source, "PMI");
    ck_assert_int_eq(READ(&p, NULL, ADDRESS, "PMI_RANK=1", "PMI_SIZE=2", "OMPI_COMM_WORLD_RANK=2",
                          "OMPI_COMM_WORLD_SIZE=3"),
                     0);
    ck_assert_str_eq(p.source, "Open MPI");
    ck_assert_int_eq(READ(&p, NULL, ADDRESS, "OMPI_COMM_WORLD_RANK=2", "OMPI_COMM_WORLD_SIZE=3",
                          "RANK=0", "WORLD_SIZE=1"),
                     0);
    ck_assert_str_eq(p.source, "torchrun");
    /* A source of which the rank or the size is missing or empty is skipped. */
    ck_assert_int_eq(READ(&p, NULL, ADDRESS, "RANK=", "WORLD_SIZE=4", "PMI_RANK=1", "PMI_SIZE=2"),
                     0);
    ck_assert_str_eq(p.source, "PMI");
}
END_TEST

START_TEST(options_beat_the_environment) {
    const char *list[] = {ADDRESS, "RANK=3", "WORLD_SIZE=8", NULL};
    struct worker_place p;
    ck_assert_int_eq(worker_place_read(from_list, (void *) list, NULL, 1, 2, &p, NULL), 0);
    ck_assert_int_eq(p.rank, 1);
    ck_assert_int_eq(p.world_size, 2);
    const char *bare[] = {ADDRESS, NULL};
    ck_assert_int_eq(worker_place_read(from_list, (void *) bare, NULL, 0, 2, &p, NULL), 0);
    ck_assert_str_eq(p.source, "options");
}
END_TEST

#define CK_TEXT(err, part)                                                                         \
    ck_assert_msg(strstr((err).text, part) != NULL, "'%s' is not in '%s'", part, (err).text)

START_TEST(errors_name_what_was_looked_for) {
    struct worker_place p;
    struct cr_error err;
    ck_assert_int_eq(READ(&p, &err, "WORLD_SIZE=2"), -EINVAL);
    CK_TEXT(err, "RANK unset, WORLD_SIZE set");
    CK_TEXT(err, "OMPI_COMM_WORLD_RANK unset");
    CK_TEXT(err, "SLURM_PROCID");
    CK_TEXT(err, "crun");
    ck_assert_int_eq(READ(&p, &err, ADDRESS, "RANK=x1", "WORLD_SIZE=2"), -EINVAL);
    CK_TEXT(err, "RANK='x1'");
    ck_assert_int_eq(READ(&p, &err, ADDRESS, "RANK=2", "WORLD_SIZE=2"), -EINVAL);
    CK_TEXT(err, "rank 2");
    ck_assert_int_eq(READ(&p, &err, "RANK=0", "WORLD_SIZE=2"), -EINVAL);
    CK_TEXT(err, "MASTER_ADDR and MASTER_PORT are not set");
    ck_assert_int_eq(READ(&p, &err, "RANK=0", "WORLD_SIZE=2", "MASTER_ADDR=a"), -EINVAL);
    CK_TEXT(err, ": MASTER_PORT is not set");
    ck_assert_int_eq(READ(&p, &err, "RANK=0", "WORLD_SIZE=2", "MASTER_PORT=1"), -EINVAL);
    CK_TEXT(err, ": MASTER_ADDR is not set");
    ck_assert_int_eq(READ(&p, &err, "RANK=0", "WORLD_SIZE=2", "MASTER_ADDR=a", "MASTER_PORT=70000"),
                     -EINVAL);
    CK_TEXT(err, "MASTER_PORT='70000'");
}
END_TEST

START_TEST(tcp_url) {
    const char *list[] = {ADDRESS, "RANK=3", "WORLD_SIZE=8", "TORCHELASTIC_USE_AGENT_STORE=True",
                          NULL};
    const char *none[] = {NULL};
    struct worker_place p;
    struct cr_error err;
#define TCP(list, method, rank, size)                                                              \
    worker_place_read(from_list, (void *) (list), method, rank, size, &p, &err)
    ck_assert_int_eq(TCP(none, "tcp://[::1]:123?rank=1&world_size=4", -1, -1), 0);
    ck_assert_str_eq(p.master_addr, "::1");
    ck_assert_uint_eq(p.master_port, 123);
    ck_assert_int_eq(p.rank, 1);
    ck_assert_int_eq(p.world_size, 4);
    ck_assert_int_eq(p.agent_hosts_store, 0);
    ck_assert_int_eq(TCP(none, "tcp://a:1", 0, 2), 0);
    ck_assert_int_eq(TCP(list, "tcp://a:1", -1, -1), 0); /* rank and size are in the environment */
    ck_assert_int_eq(p.rank, 3);
    ck_assert_int_eq(p.agent_hosts_store, 0); /* the URL names another store than the agent's */
    ck_assert_int_eq(TCP(list, "tcp://node7:29500", -1, -1), 0);
    ck_assert_int_eq(p.agent_hosts_store, 1);
    ck_assert_int_eq(TCP(none, "tcp://a:1?rank=1&world_size=4", 2, 4), -EINVAL);
    CK_TEXT(err, "the options have 2 and the query has 1");
    ck_assert_int_eq(TCP(none, "tcp://a?rank=1&world_size=4", -1, -1), -EINVAL);
    CK_TEXT(err, "port is missing");
    ck_assert_int_eq(TCP(none, "tcp://a:1?rank=x", -1, -1), -EINVAL);
    ck_assert_int_eq(TCP(none, "tcp://a:1?world_size=0", 0, -1), -EINVAL);
    ck_assert_int_eq(TCP(none, "tcp://a:1?rnk=0", -1, -1), -EINVAL);
    ck_assert_int_eq(TCP(none, "tcp://a:1", -1, -1), -EINVAL);
    ck_assert_int_eq(TCP(none, "file:///tmp/x?world_size=3&rank=2", -1, -1), 0);
    ck_assert_str_eq(p.file, "/tmp/x");
    ck_assert_int_eq(p.rank, 2);
    ck_assert_int_eq(TCP(none, "file://tmp/x", 0, 1), -EINVAL);
    ck_assert_int_eq(TCP(none, "file:///", 0, 1), -EINVAL);
    ck_assert_int_eq(TCP(none, "udp://a:1", -1, -1), -ENOTSUP);
    CK_TEXT(err, "udp://a:1");
}
END_TEST

START_TEST(the_place_in_the_next_round) {
    struct channel_packet good = {.type = CHANNEL_ROUND,
                                  .place = {.rank = 3,
                                            .world_size = 4,
                                            .local_rank = 1,
                                            .local_world_size = 2,
                                            .restart_count = 5,
                                            .master_port = 65535,
                                            .master_addr = "node7"}};
    struct worker_place p = {.file = "/tmp/store"};
    struct cr_error err;
    ck_assert_int_eq(worker_place_from_packet(&good, &p, &err), 0);
    ck_assert_int_eq(p.rank * 1000 + p.world_size * 100 + p.local_rank * 10 + p.local_world_size,
                     3412);
    ck_assert_int_eq(p.restart_count, 5);
    ck_assert_uint_eq(p.master_port, 65535);
    ck_assert_str_eq(p.master_addr, "node7");
    ck_assert_str_eq(p.file, "");
    ck_assert(p.agent_hosts_store);

    struct channel_packet bad[8];
    for (size_t i = 0; i < CR_ARRAY_LEN(bad); i++) bad[i] = good;
    bad[0].place.world_size = 0;
    bad[1].place.world_size = UINT32_MAX;
    bad[2].place.rank = 4;
    bad[3].place.local_rank = 2;
    bad[4].place.local_world_size = UINT32_MAX;
    bad[5].place.restart_count = UINT32_MAX;
    bad[6].place.master_port = 65536;
    memset(bad[7].place.master_addr, 'x', sizeof(bad[7].place.master_addr));
    for (size_t i = 0; i < CR_ARRAY_LEN(bad); i++) {
        struct worker_place untouched = {.rank = -7};
        ck_assert_int_eq(worker_place_from_packet(&bad[i], &untouched, &err), -EPROTO);
        ck_assert_int_eq(untouched.rank, -7);
        CK_TEXT(err, "a place that makes no sense");
    }
}
END_TEST

int main(void) {
    Suite *s = suite_create("worker_place");
    TCase *c = tcase_create("env");
    tcase_add_test(c, torchrun_variables);
    tcase_add_test(c, agent_store_must_be_exactly_True);
    tcase_add_test(c, a_port_that_nobody_can_reach_is_refused);
    tcase_add_test(c, other_launchers_in_order);
    tcase_add_test(c, options_beat_the_environment);
    tcase_add_test(c, tcp_url);
    tcase_add_test(c, errors_name_what_was_looked_for);
    tcase_add_test(c, the_place_in_the_next_round);
    suite_add_tcase(s, c);
    return run_suite(s);
}
