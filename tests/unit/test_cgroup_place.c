/* Tests of base/process/cgroup_place.h with the texts of /proc/self/cgroup and /proc/self/mountinfo
 * in the arrangements that machines and containers have. */
#include "base/process/cgroup_place.h"
#include "tests/lib/run_suite.h"

#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Checks that the cgroup in the hierarchy of `controller` has the folder `want`. If want is NULL,
 * there must be none. */
static void check_place(const char *cgroups, const char *mounts, const char *controller,
                        const char *want, bool want_guess) {
    char out[PATH_MAX] = "";
    bool is_guess = false;
    int rc = cr_cgroup_find(cgroups, mounts, controller, out, &is_guess);
    ck_assert_int_eq(rc, want != NULL ? 0 : -ENOENT);
    ck_assert_str_eq(out, want != NULL ? want : "");
    ck_assert_int_eq(is_guess, want_guess);
}

#define V2_AT(root, folder)                                                                        \
    "29 23 0:26 " root " " folder " rw,nosuid shared:4 - cgroup2 cgroup2 rw\n"
#define V1_AT(root, folder, controllers) \
    "35 31 0:32 " root " " folder " rw,relatime - cgroup cgroup rw," controllers "\n"
#define ROOT_FS "22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n"

START_TEST(test_a_machine_with_version_2) {
    const char *mounts = ROOT_FS V2_AT("/", "/sys/fs/cgroup");
    check_place("0::/user.slice/run-1.scope\n", mounts, CR_CGROUP_V2,
                "/sys/fs/cgroup/user.slice/run-1.scope", false);
    check_place("0::/\n", mounts, CR_CGROUP_V2, "/sys/fs/cgroup", false);
    check_place("0::/a\n", mounts, "memory", NULL, false);
    /* a later mount covers an earlier one */
    check_place("0::/a/b\n", V2_AT("/", "/sys/fs/cgroup") V2_AT("/a", "/sys/fs/cgroup"),
                CR_CGROUP_V2, "/sys/fs/cgroup/b", false);
    check_place("0::/a\n", ROOT_FS, CR_CGROUP_V2, NULL, false);
}
END_TEST

START_TEST(test_a_container_with_a_cgroup_namespace) {
    check_place("0::/\n", V2_AT("/", "/sys/fs/cgroup"), CR_CGROUP_V2, "/sys/fs/cgroup", false);
    /* /sys/fs/cgroup was mounted outside of the namespace, so the root of the mount lies above the
     * root of the namespace ("/../.."), and the folder is only a guess */
    check_place("0::/\n", V2_AT("/../..", "/sys/fs/cgroup"), CR_CGROUP_V2, "/sys/fs/cgroup", true);
}
END_TEST

/* A container that shares the host's cgroup namespace reads in /proc/self/cgroup its path on the
 * host, but only its own part of the hierarchy is mounted. */
START_TEST(test_a_container_with_the_namespace_of_the_host) {
    check_place("0::/kubepods/pod1/ctr\n", V2_AT("/kubepods/pod1/ctr", "/sys/fs/cgroup"),
                CR_CGROUP_V2, "/sys/fs/cgroup", false);
    check_place("0::/kubepods/pod1/ctr/init\n", V2_AT("/kubepods/pod1/ctr", "/sys/fs/cgroup"),
                CR_CGROUP_V2, "/sys/fs/cgroup/init", false);
    check_place("7:memory:/docker/ab\n3:cpu,cpuacct:/docker/ab\n",
                V1_AT("/docker/ab", "/sys/fs/cgroup/cpu,cpuacct", "cpu,cpuacct")
                    V1_AT("/docker/ab", "/sys/fs/cgroup/memory", "memory"),
                "memory", "/sys/fs/cgroup/memory", false);
    /* the path of the cgroup does not lie below the root of the mount, so the folder of the mount
     * is returned as a guess */
    check_place("7:memory:/kubepods/x\n", V1_AT("/kubepods.slice/y", "/sys/fs/cgroup/memory",
                                                "memory"),
                "memory", "/sys/fs/cgroup/memory", true);
}
END_TEST

START_TEST(test_a_hybrid_machine) {
    const char *cgroups = "9:name=systemd:/\n4:memory:/jobs/7\n1:cpu,cpuacct:/c\n0::/s\n";
    const char *mounts = V1_AT("/", "/sys/fs/cgroup/cpu,cpuacct", "cpu,cpuacct")
        V1_AT("/", "/sys/fs/cgroup/memory", "memory")
        V2_AT("/", "/sys/fs/cgroup/unified");
    check_place(cgroups, mounts, CR_CGROUP_V2, "/sys/fs/cgroup/unified/s", false);
    check_place(cgroups, mounts, "memory", "/sys/fs/cgroup/memory/jobs/7", false);
    check_place(cgroups, mounts, "cpuacct", "/sys/fs/cgroup/cpu,cpuacct/c", false);
    check_place(cgroups, mounts, "pids", NULL, false);
}
END_TEST

START_TEST(test_odd_texts) {
    char out[PATH_MAX];
    check_place("0::/a b\n", V2_AT("/a\\040b", "/mnt/c\\134d"), CR_CGROUP_V2, "/mnt/c\\d", false);
    check_place("", "", CR_CGROUP_V2, NULL, false);
    check_place("0::\n::\n:", "- - -\n\n \n", CR_CGROUP_V2, NULL, false);
    /* if the caller takes no guess (the last argument is NULL), the search fails */
    int rc = cr_cgroup_find("0::/x\n", V2_AT("/y", "/m"), CR_CGROUP_V2, out, NULL);
    ck_assert_int_eq(rc, -ENOENT);
}
END_TEST

START_TEST(test_lines_of_mountinfo_that_are_read) {
    char path[] = "/tmp/test_cgroup_place_XXXXXX";
    const char *cgroups =
        V1_AT("/", "/sys/fs/cgroup/memory", "memory") V2_AT("/", "/sys/fs/cgroup");
    struct cr_buffer out = {0};
    int fd = mkstemp(path);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_gt(dprintf(fd,
                             "22 27 0:21 / /proc rw - proc proc rw\n%s"
                             "23 27 8:1 / /mnt/cgroup2 rw - ext4 /dev/cgroup rw\n",
                             cgroups),
                     0);
    ck_assert_int_eq(cr_cgroup_read_mounts(path, &out), 0);
    ck_assert_str_eq(out.data, cgroups);
    ck_assert_uint_eq(out.len, strlen(cgroups));
    cr_buffer_done(&out);
    (void) unlink(path);
    (void) close(fd);
    ck_assert_int_eq(cr_cgroup_read_mounts(path, &out), -ENOENT);
    cr_buffer_done(&out);
}
END_TEST

int main(void) {
    Suite *s = suite_create("cgroup_place");
    TCase *t = tcase_create("all");
    tcase_add_test(t, test_a_machine_with_version_2);
    tcase_add_test(t, test_a_container_with_a_cgroup_namespace);
    tcase_add_test(t, test_a_container_with_the_namespace_of_the_host);
    tcase_add_test(t, test_a_hybrid_machine);
    tcase_add_test(t, test_odd_texts);
    tcase_add_test(t, test_lines_of_mountinfo_that_are_read);
    suite_add_tcase(s, t);
    return run_suite(s);
}
