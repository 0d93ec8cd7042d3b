/* Tests of --numa-binding with invented machines: each test writes the sysfs files of a machine
 * with several NUMA nodes into a folder, which the code reads in place of /sys. */
#include "launcher/devices/numa_binding.h"
#include "tests/lib/run_suite.h"

#include <check.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char root[64];
static struct numa_topology t;
static struct cr_error err;

/* Writes `text` into the file <root>/<path>, and creates the folders above it. */
__attribute__((format(printf, 2, 3))) static void put(const char *text, const char *fmt, ...) {
    char path[512];
    size_t len = (size_t) snprintf(path, sizeof(path), "%s/", root);
    va_list ap;
    va_start(ap, fmt);
    (void) vsnprintf(path + len, sizeof(path) - len, fmt, ap);
    va_end(ap);
    FILE *f = fopen(path, "w");
    for (char *at = path + len; f == NULL && (at = strchr(at, '/')) != NULL; *at++ = '/') {
        *at = '\0';
        (void) mkdir(path, 0755);
    }
    if (f == NULL) f = fopen(path, "w");
    ck_assert_ptr_nonnull(f);
    (void) fprintf(f, "%s\n", text);
    (void) fclose(f);
}

static void put_cache(unsigned cpu, unsigned index, unsigned level, const char *type,
                      const char *list) {
    char number[16];
    (void) snprintf(number, sizeof(number), "%u", level);
    put(number, "devices/system/cpu/cpu%u/cache/index%u/level", cpu, index);
    put(type, "devices/system/cpu/cpu%u/cache/index%u/type", cpu, index);
    put(list, "devices/system/cpu/cpu%u/cache/index%u/shared_cpu_list", cpu, index);
}

/* Writes a machine with two sockets of two NUMA nodes each; a node has four cores of two threads.
 * Node n has the CPUs 4n to 4n+3 and, as their second threads, the CPUs 4n+16 to 4n+19. Cores 2i
 * and 2i+1 share a last-level cache. A fifth node has memory but no CPUs. */
static void two_sockets(void) {
    char list[32];
    for (unsigned node = 0; node < 4; node++) {
        (void) snprintf(list, sizeof(list), "%u-%u,%u-%u", node * 4, node * 4 + 3, node * 4 + 16,
                        node * 4 + 19);
        put(list, "devices/system/node/node%u/cpulist", node);
    }
    put("", "devices/system/node/node4/cpulist");
    put("0-4", "devices/system/node/possible");
    for (unsigned cpu = 0; cpu < 32; cpu++) {
        unsigned core = cpu % 16, pair = core / 2 * 2;
        put(core / 8 == 0 ? "0" : "1", "devices/system/cpu/cpu%u/topology/physical_package_id",
            cpu);
        (void) snprintf(list, sizeof(list), "%u,%u", core, core + 16);
        put(list, "devices/system/cpu/cpu%u/topology/thread_siblings_list", cpu);
        put_cache(cpu, 0, 1, "Data", list);
        put_cache(cpu, 1, 9, "Instruction", list);
        (void) snprintf(list, sizeof(list), "%u-%u,%u-%u", pair, pair + 1, pair + 16, pair + 17);
        put_cache(cpu, 2, 3, "Unified", list);
        put_cache(cpu, 3, 2, "Unified", "0-31");
    }
}

/* Writes the machine's files once for all tests, because there are hundreds of files. So a test
 * that changes these files must run after all other tests, and must first write the files that it
 * needs. */
static void write_machine(void) {
    const char *folder = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
    (void) snprintf(root, sizeof(root), "%s/crun-numa-XXXXXX", folder);
    ck_assert_ptr_nonnull(mkdtemp(root));
    two_sockets();
}

static void remove_machine(void) {
    char command[128];
    (void) snprintf(command, sizeof(command), "rm -rf '%s'", root);
    ck_assert_int_eq(system(command), 0);
}

static void setup(void) { cr_error_clear(&err); }

static void teardown(void) { numa_topology_done(&t); }

static int read_for(enum numa_mode mode, const char *allowed) {
    struct cr_cpu_mask mask;
    numa_topology_done(&t);
    ck_assert_int_eq(cr_cpu_parse(allowed, &mask), 0);
    return numa_topology_read(root, &mask, numa_mode_reads(mode), &t, &err);
}

/* Returns the CPUs, as a list, to which the worker of GPU number `gpu` is bound, if the launcher
 * may use the CPUs `allowed` and GPU number i is attached to NUMA node nodes[i]. */
static const char *bound(enum numa_mode mode, const char *allowed, uint32_t gpu, uint32_t gpus,
                         const int32_t *nodes) {
    static char text[128];
    struct cr_cpu_mask mask;
    ck_assert_msg(read_for(mode, allowed) == 0, "%s", err.text);
    int rc = numa_binding(mode, &t, nodes, gpus, gpu, &mask, &err);
    if (rc < 0) return err.text;
    cr_cpu_format(&mask, text, sizeof(text));
    return text;
}

#define BOUND(mode, allowed, gpu, ...)                                                             \
    bound(mode, allowed, gpu, sizeof((int32_t[]){__VA_ARGS__}) / sizeof(int32_t),                  \
          (const int32_t[]){__VA_ARGS__})

START_TEST(cpus_of_the_node) {
    ck_assert_str_eq(BOUND(NUMA_NODE, "0-31", 0, 0), "0-3,16-19");
    ck_assert_str_eq(BOUND(NUMA_NODE, "0-31", 1, 0, 3), "12-15,28-31");
    ck_assert_str_eq(BOUND(NUMA_NODE, "2-13", 0, 0, 3), "2-3");
    ck_assert_str_eq(BOUND(NUMA_NODE, "2-13", 1, 0, 3), "12-13");
}
END_TEST

START_TEST(cpus_of_the_socket) {
    ck_assert_str_eq(BOUND(NUMA_SOCKET, "0-31", 0, 1), "0-7,16-23");
    ck_assert_str_eq(BOUND(NUMA_SOCKET, "0-31", 0, 2), "8-15,24-31");
    ck_assert_str_eq(BOUND(NUMA_SOCKET, "9,14,20", 0, 3), "9,14");
}
END_TEST

START_TEST(exclusive_cores_are_whole_and_disjoint) {
    ck_assert_str_eq(BOUND(NUMA_EXCLUSIVE, "0-31", 0, 0), "0-3,16-19");
    ck_assert_str_eq(BOUND(NUMA_EXCLUSIVE, "0-31", 0, 0, 0), "0-1,16-17");
    ck_assert_str_eq(BOUND(NUMA_EXCLUSIVE, "0-31", 1, 0, 0), "2-3,18-19");
    /* 4 cores for 3 GPUs: GPU 0 gets 2 */
    ck_assert_str_eq(BOUND(NUMA_EXCLUSIVE, "0-31", 0, 0, 0, 0), "0-1,16-17");
    ck_assert_str_eq(BOUND(NUMA_EXCLUSIVE, "0-31", 1, 0, 0, 0), "2,18");
    ck_assert_str_eq(BOUND(NUMA_EXCLUSIVE, "0-31", 2, 0, 0, 0), "3,19");
    ck_assert_str_eq(BOUND(NUMA_EXCLUSIVE, "0-31", 3, 1, 0, 1, 0), "2-3,18-19");
    /* Of core 0 only CPU 16 is allowed, but core 0 is still the first of the cores. */
    ck_assert_str_eq(BOUND(NUMA_EXCLUSIVE, "1-3,16-19", 0, 0, 0), "1,16-17");
    ck_assert_ptr_nonnull(
        strstr(BOUND(NUMA_EXCLUSIVE, "0-1,16", 0, 0, 0, 0), "2 physical core(s)"));
}
END_TEST

START_TEST(core_complexes_in_turn) {
    ck_assert_str_eq(BOUND(NUMA_CORE_COMPLEX, "0-31", 0, 0, 0), "0-1,16-17");
    ck_assert_str_eq(BOUND(NUMA_CORE_COMPLEX, "0-31", 1, 0, 0), "2-3,18-19");
    /* there are 2 core complexes for 3 GPUs: GPU 2 gets the first complex, as GPU 0 does */
    ck_assert_str_eq(BOUND(NUMA_CORE_COMPLEX, "0-31", 2, 0, 0, 0), "0-1,16-17");
    /* the first worker gets the core complex with the most allowed CPUs */
    ck_assert_str_eq(BOUND(NUMA_CORE_COMPLEX, "1-3,16-19", 0, 0, 0), "2-3,18-19");
    ck_assert_str_eq(BOUND(NUMA_CORE_COMPLEX, "1-3,17-19", 1, 0, 0), "1,17");
}
END_TEST

START_TEST(no_cpu_there_for_us) {
    ck_assert_ptr_nonnull(strstr(BOUND(NUMA_NODE, "0-3", 0, 2), "no CPU of NUMA node 2"));
    ck_assert_ptr_nonnull(strstr(BOUND(NUMA_NODE, "0-31", 0, 4), "no CPU of NUMA node 4"));
}
END_TEST

START_TEST(nodes_of_devices) {
    two_sockets();
    put("2", "bus/pci/devices/0000:3b:00.0/numa_node");
    put("-1", "bus/pci/devices/0000:5e:00.0/numa_node");
    put("two", "bus/pci/devices/0000:86:00.0/numa_node");
    ck_assert_int_eq(read_for(NUMA_NODE, "0-31"), 0);
    ck_assert_int_eq(t.only_node, -1);
    ck_assert_int_eq(numa_node_of_device(root, &t, "0000:3b:00.0"), 2);
    ck_assert_int_eq(numa_node_of_device(root, &t, "0000:5e:00.0"), -1);
    ck_assert_int_eq(numa_node_of_device(root, &t, "0000:86:00.0"), -1);
    ck_assert_int_eq(numa_node_of_device(root, &t, "0000:af:00.0"), -1);
    ck_assert_int_eq(numa_node_of_device(root, &t, ""), -1);
    for (unsigned node = 0; node < 4; node++) {
        put(node == 3 ? "0-31" : "", "devices/system/node/node%u/cpulist", node);
    }
    ck_assert_int_eq(read_for(NUMA_NODE, "0-3"), 0);
    /* the only node with CPUs */
    ck_assert_int_eq(numa_node_of_device(root, &t, "0000:5e:00.0"), 3);
}
END_TEST

START_TEST(files_that_are_not_as_expected) {
    two_sockets();
    put("1-", "devices/system/node/node1/cpulist");
    ck_assert_int_eq(read_for(NUMA_NODE, "0-31"), -EINVAL);
    ck_assert_ptr_nonnull(strstr(err.text, "node1/cpulist"));
    put("", "devices/system/node/node1/cpulist");
    put("many", "devices/system/cpu/cpu3/topology/physical_package_id");
    ck_assert_int_eq(read_for(NUMA_NODE, "0-31"), 0);
    ck_assert_int_eq(read_for(NUMA_SOCKET, "0-31"), -EINVAL);
    ck_assert_ptr_nonnull(strstr(err.text, "cpu3/topology/physical_package_id"));
    put("", "devices/system/cpu/cpu3/topology/thread_siblings_list");
    ck_assert_int_eq(read_for(NUMA_EXCLUSIVE, "0-31"), -EINVAL);
    put("L3", "devices/system/cpu/cpu3/cache/index2/level");
    ck_assert_int_eq(read_for(NUMA_CORE_COMPLEX, "0-31"), -EINVAL);
    struct cr_cpu_mask none = {0};
    ck_assert_int_eq(numa_topology_read("/nowhere", &none, 0, &t, &err), -ENOENT);
}
END_TEST

START_TEST(a_machine_that_tells_of_no_cache) {
    char command[160];
    two_sockets();
    (void) snprintf(command, sizeof(command), "rm -rf '%s'/devices/system/cpu/cpu*/cache", root);
    ck_assert_int_eq(system(command), 0);
    ck_assert_str_eq(BOUND(NUMA_CORE_COMPLEX, "0-31", 1, 0, 0), "0-3,16-19");
}
END_TEST

int main(void) {
    Suite *s = suite_create("numa");
    TCase *c = tcase_create("binding");
    tcase_set_timeout(c, 60); /* a test writes hundreds of small files */
    tcase_add_unchecked_fixture(c, write_machine, remove_machine);
    tcase_add_checked_fixture(c, setup, teardown);
    tcase_add_test(c, cpus_of_the_node);
    tcase_add_test(c, cpus_of_the_socket);
    tcase_add_test(c, exclusive_cores_are_whole_and_disjoint);
    tcase_add_test(c, core_complexes_in_turn);
    tcase_add_test(c, no_cpu_there_for_us);
    tcase_add_test(c, nodes_of_devices);
    tcase_add_test(c, files_that_are_not_as_expected);
    tcase_add_test(c, a_machine_that_tells_of_no_cache);
    suite_add_tcase(s, c);
    return run_suite(s);
}
