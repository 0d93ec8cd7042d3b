/* Tests agent/health/judge.c: which facts make a node unfit. */
#include "agent/health/judge_internal.h"

#include "tests/lib/run_suite.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define ALL ((1u << HEALTH_CHECK_COUNT) - 1)

static char why[HEALTH_WHY_MAX];

/* Returns the facts of a healthy node: a container with the defaults of Docker, without a GPU. */
static struct health_facts healthy(void) {
    return (struct health_facts){
        .workers = 8, .wall_s = INT64_C(1763800000), .has_shm = true,
        .shm_free = UINT64_C(64) << 20, .files = 1024, .memlock = UINT64_C(8) << 20,
        .folder = "/tmp", .disk_free = UINT64_C(1) << 30, .inodes_free = 100000,
        .gpus_of_driver = HEALTH_UNKNOWN, .gpus_of_nvml = HEALTH_UNKNOWN};
}

static void refuse(const struct health_facts *f, uint32_t mask, const char *begin) {
    ck_assert(!health_judge(f, mask, why));
    ck_assert_msg(strncmp(why, begin, strlen(begin)) == 0, "%s", why);
}

START_TEST(a_healthy_node_passes) {
    struct health_facts f = healthy();
    ck_assert(health_judge(&f, ALL, why));
    ck_assert_str_eq(why, "");
    f.gpus_of_driver = f.gpus_of_nvml = 8;
    f.has_rdma = true;
    f.memlock = f.files = f.disk_free = f.inodes_free = HEALTH_UNKNOWN; /* no limits */
    ck_assert(health_judge(&f, ALL, why));
}
END_TEST

START_TEST(each_check_names_itself_and_its_number) {
    struct health_facts f = healthy();
    f.wall_s = 86400;
    refuse(&f, ALL, "clock: it is before 2025 (86400 s since 1970)");
    f = healthy();
    f.has_shm = false;
    refuse(&f, ALL, "shm: /dev/shm is missing");
    f = healthy();
    f.shm_free = (UINT64_C(8) << 20) - 1;
    refuse(&f, ALL, "shm: /dev/shm has 7 MiB free");
    f = healthy();
    f.has_rdma = true;
    refuse(&f, ALL, "memlock: this node has RDMA devices, but only 8192 KiB");
    f = healthy();
    f.files = 95;
    refuse(&f, ALL, "files: a process may open 95 files, workers need at least 96");
    f = healthy();
    f.disk_free = 5 << 20;
    refuse(&f, ALL, "disk: 5 MiB are free for '/tmp'");
    f = healthy();
    f.inodes_free = 3;
    refuse(&f, ALL, "disk: 3 more files can be made in '/tmp'");
    f = healthy();
    f.gpus_of_driver = 8;
    f.gpus_of_nvml = 7;
    refuse(&f, ALL, "gpu: the driver lists 8 GPUs, and NVML finds 7");
    f = healthy();
    (void) snprintf(f.gpu_error, sizeof(f.gpu_error), "GPU 3 does not answer");
    refuse(&f, ALL, "gpu: GPU 3 does not answer");
    f = healthy();
    (void) snprintf(f.link, sizeof(f.link), "eth0");
    (void) snprintf(f.link_state, sizeof(f.link_state), "down");
    refuse(&f, ALL, "link: 'eth0' is in use and its state is 'down'");
    f = healthy();
    (void) snprintf(f.segment, sizeof(f.segment), "/shared/segment_health_check.7.7");
    refuse(&f, ALL, "segment: the file '/shared/segment_health_check.7.7' marks this allocation");
}
END_TEST

START_TEST(only_the_checks_of_the_mask_are_made) {
    struct health_facts f = healthy();
    f.wall_s = 0;
    f.files = 3;
    ck_assert(health_judge(&f, 0, why));
    refuse(&f, 1u << HEALTH_FILES, "files:");
    ck_assert(health_judge(&f, ALL & ~(1u << HEALTH_FILES | 1u << HEALTH_CLOCK), why));
}
END_TEST

START_TEST(the_list_is_read) {
    uint32_t mask = 99;
    struct cr_error err = {0};
    ck_assert_int_eq(health_read_checks("none", &mask, &err), 0);
    ck_assert_uint_eq(mask, 0);
    ck_assert_int_eq(health_read_checks("all", &mask, &err), 0);
    ck_assert_uint_eq(mask, ALL);
    ck_assert_int_eq(health_read_checks("disk,gpu", &mask, &err), 0);
    ck_assert_uint_eq(mask, 1u << HEALTH_DISK | 1u << HEALTH_GPU);
    ck_assert_int_eq(health_read_checks("disk,gp", &mask, &err), -EINVAL);
    ck_assert_int_eq(strncmp(err.text, "'gp' is no built-in check", 25), 0);
    ck_assert_int_eq(health_read_checks(",disk", &mask, &err), -EINVAL);
}
END_TEST

int main(void) {
    Suite *s = suite_create("health");
    TCase *t = tcase_create("health");
    tcase_add_test(t, a_healthy_node_passes);
    tcase_add_test(t, each_check_names_itself_and_its_number);
    tcase_add_test(t, only_the_checks_of_the_mask_are_made);
    tcase_add_test(t, the_list_is_read);
    suite_add_tcase(s, t);
    return run_suite(s);
}
