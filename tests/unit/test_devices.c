/* Tests how the launcher finds GPUs. No GPU is needed: the test builds a fake NVML library and
 * makes fake /dev and /proc folders. */
#include "launcher/devices/accelerators.h"
#include "launcher/devices/gpus.h"
#include "tests/lib/run_suite.h"

#include <check.h>
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char root[] = "/tmp/crun-devices-XXXXXX";
static char nvml[64], dev[64], proc_nvidia[64];
static struct device_places places;
static struct cr_error err;

/* Source of the fake NVML. Environment variables set the GPUs, nvmlInit()'s result and the
 * UUIDs. */
static const char fake_nvml[] =
    "#include <stdio.h>\n"
    "#include <stdlib.h>\n"
    "static int number(const char *n) { const char *t = getenv(n); return t ? atoi(t) : 0; }\n"
    "int nvmlInit_v2(void) { return number(\"FAKE_INIT\"); }\n"
    "int nvmlShutdown(void) { return 0; }\n"
    "int nvmlDeviceGetCount_v2(unsigned *n) { *n = (unsigned) number(\"FAKE_GPUS\"); return 0; }\n"
    "int nvmlDeviceGetHandleByIndex_v2(unsigned i, void **d) { *d = (void *) (long) (i + 1); "
    "return 0; }\n"
    "int nvmlDeviceGetUUID(void *d, char *t, unsigned n) {\n"
    "    return snprintf(t, n, \"GPU-%ldb0\", (long) d) < 0; }\n"
    "int nvmlDeviceGetPciInfo_v3(void *d, void *at) {\n"
    "    struct { char old[16]; unsigned domain, bus, device, id, sub; char bus_id[32]; } *p = "
    "at;\n"
    "    if (getenv(\"FAKE_NO_PCI\")) return 999;\n"
    "    p->domain = 0; p->bus = 0x3a + (unsigned) (long) d; p->device = 0; return 0; }\n"
    "int nvmlDeviceGetHandleByUUID(const char *t, void **d) {\n"
    "    *d = (void *) (long) (t[4] - 'a' + 1); return t[4] < 'a'; }\n"
    "int nvmlDeviceGetDeviceHandleFromMigDeviceHandle(void *slice, void **card) {\n"
    "    *card = slice; return 0; }\n"
    "const char *nvmlErrorString(int code) { return code == 18 ? \"version mismatch\" : \"?\"; }\n";

static void touch(const char *folder, const char *name) {
    char path[256];
    (void) snprintf(path, sizeof(path), "%s/%s", folder, name);
    FILE *f = fopen(path, "w");
    ck_assert_ptr_nonnull(f);
    (void) fclose(f);
}

static void make_folder(const char *path) { ck_assert_int_eq(mkdir(path, 0755), 0); }

static void build_nvml(void) {
    char command[512], source[96];
    (void) snprintf(source, sizeof(source), "%s/nvml.c", root);
    FILE *f = fopen(source, "w");
    ck_assert_ptr_nonnull(f);
    (void) fputs(fake_nvml, f);
    (void) fclose(f);
    const char *cc = getenv("CC");
    (void) snprintf(command, sizeof(command), "%s -shared -fPIC -o %s %s", cc == NULL ? "cc" : cc,
                    nvml, source);
    ck_assert_int_eq(system(command), 0);
}

static void setup(void) {
    ck_assert_ptr_nonnull(mkdtemp(root));
    (void) snprintf(nvml, sizeof(nvml), "%s/libnvml.so", root);
    (void) snprintf(dev, sizeof(dev), "%s/dev", root);
    (void) snprintf(proc_nvidia, sizeof(proc_nvidia), "%s/nvidia", root);
    make_folder(dev);
    places = (struct device_places){.nvml = nvml, .dev = dev, .proc_nvidia = proc_nvidia};
    cr_error_clear(&err);
    (void) unsetenv("FAKE_INIT");
    (void) setenv("FAKE_GPUS", "0", 1);
}

static void teardown(void) {
    char command[128];
    (void) snprintf(command, sizeof(command), "rm -rf '%s'", root);
    ck_assert_int_eq(system(command), 0);
}

static uint32_t count(const char *visible) {
    uint32_t n = 99;
    ck_assert_int_eq(device_gpu_count(&places, visible, &n, &err), 0);
    return n;
}

START_TEST(nothing_at_all) {
    ck_assert_uint_eq(count(NULL), 0);
    ck_assert_uint_eq(count("0,1"), 0);
}
END_TEST

START_TEST(device_files) {
    touch(dev, "nvidia0");
    touch(dev, "nvidia1");
    touch(dev, "nvidia12");
    touch(dev, "nvidiactl");
    touch(dev, "nvidia-uvm");
    touch(dev, "nvidia0x");
    ck_assert_uint_eq(count(NULL), 3);
    ck_assert_uint_eq(count("0,2"), 2);
    ck_assert_uint_eq(count("GPU-abc,GPU-def"), 2); /* without NVML, UUIDs are not checked */
}
END_TEST

START_TEST(driver_entries) {
    char gpus[128];
    (void) snprintf(gpus, sizeof(gpus), "%s/gpus", proc_nvidia);
    make_folder(proc_nvidia);
    make_folder(gpus);
    touch(gpus, "0000:3b:00.0");
    touch(gpus, "0000:af:00.0");
    ck_assert_uint_eq(count(NULL), 2);
}
END_TEST

START_TEST(nvml_decides) {
    build_nvml();
    touch(dev, "nvidia0");
    (void) setenv("FAKE_GPUS", "4", 1);
    ck_assert_uint_eq(count(NULL), 4);
    (void) setenv("FAKE_GPUS", "0", 1);
    ck_assert_uint_eq(count(NULL), 0);
    (void) setenv("FAKE_INIT", "9", 1); /* nvmlInit() fails as without a driver, so /dev is used */
    ck_assert_uint_eq(count(NULL), 1);
    (void) setenv("FAKE_INIT", "18", 1);
    uint32_t n = 99;
    ck_assert_int_eq(device_gpu_count(&places, NULL, &n, &err), -ENODEV);
    ck_assert_uint_eq(n, 99);
    ck_assert_ptr_nonnull(strstr(err.text, "version mismatch"));
    ck_assert_uint_eq(count(""), 0); /* no GPU is visible, so NVML is not called */
}
END_TEST

START_TEST(visible_devices) {
    static const struct {
        const char *list;
        uint32_t count;
    } cases[] = {
        {"", 0},
        {"-1", 0},
        {"0", 1},
        {"3,1", 2},
        {"0,2,-1,1", 2},
        {"0,9,1", 1},
        {" 0 , 1 ", 2},
        {"0,0", 0},
        {"0,", 1},
        {"x", 0},
        {"GPU-1", 1},
        {"GPU-1b0,GPU-3b", 2},
        {"GPU-", 0},
        {"GPU-7", 0},
        {"GPU-2,GPU-2b0", 0},
        {"MIG-a,MIG-b,MIG-c", 3}, /* MIG slices, not whole GPUs */
    };
    build_nvml();
    (void) setenv("FAKE_GPUS", "4", 1);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        ck_assert_msg(count(cases[i].list) == cases[i].count, "'%s' gives %u, not %u",
                      cases[i].list, count(cases[i].list), cases[i].count);
    }
}
END_TEST

/* Returns the bus ids of the visible GPUs, separated by commas. */
static const char *bus_ids(const char *visible) {
    static char text[1024];
    struct device_gpu *list;
    uint32_t n;
    ck_assert_int_eq(device_gpus(&places, visible, &list, &n, &err), 0);
    text[0] = '\0';
    for (uint32_t i = 0; i < n; i++) {
        size_t len = strlen(text);
        (void) snprintf(text + len, sizeof(text) - len, "%s%s", i > 0 ? "," : "", list[i].bus_id);
    }
    free(list);
    return text;
}

START_TEST(places_on_the_bus) {
    build_nvml();
    (void) setenv("FAKE_GPUS", "3", 1);
    ck_assert_str_eq(bus_ids(NULL), "0000:3b:00.0,0000:3c:00.0,0000:3d:00.0");
    ck_assert_str_eq(bus_ids("2,0"), "0000:3d:00.0,0000:3b:00.0");
    ck_assert_str_eq(bus_ids("GPU-2b"), "0000:3c:00.0");
    ck_assert_str_eq(bus_ids("MIG-b/1,MIG-b/2"),
                     "0000:3c:00.0,0000:3c:00.0"); /* two MIG slices of one GPU */
    ck_assert_str_eq(bus_ids("MIG-0"), "");
    ck_assert_str_eq(bus_ids(""), "");
    (void) setenv("FAKE_NO_PCI", "1", 1);
    ck_assert_str_eq(bus_ids("0,1"), ",");
    (void) unsetenv("FAKE_NO_PCI");
}
END_TEST

START_TEST(places_that_the_driver_tells) {
    char gpus[128];
    (void) snprintf(gpus, sizeof(gpus), "%s/gpus", proc_nvidia);
    make_folder(proc_nvidia);
    make_folder(gpus);
    touch(gpus, "0000:af:00.0");
    touch(gpus, "0000:3b:00.0");
    touch(dev, "nvidia0");
    touch(dev, "nvidia1");
    ck_assert_str_eq(bus_ids(NULL), "0000:3b:00.0,0000:af:00.0");
    ck_assert_str_eq(bus_ids("1"), "0000:af:00.0");
    /* The machine has three GPUs, but here only two device files. It is unknown to which GPUs these
     * belong, so no bus id is found. */
    touch(gpus, "0000:d8:00.0");
    ck_assert_str_eq(bus_ids(NULL), ",");
}
END_TEST

START_TEST(cpus_follow_the_affinity) {
    cpu_set_t all, one;
    ck_assert_int_eq(sched_getaffinity(0, sizeof(all), &all), 0);
    ck_assert_uint_eq(device_cpu_count(), (uint32_t) CPU_COUNT(&all));
    CPU_ZERO(&one);
    for (size_t cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (!CPU_ISSET(cpu, &all)) continue;
        CPU_SET(cpu, &one);
        break;
    }
    ck_assert_int_eq(sched_setaffinity(0, sizeof(one), &one), 0);
    ck_assert_uint_eq(device_cpu_count(), 1);
}
END_TEST

/* ---- accelerators of other vendors, in fake /sys and /dev folders ---- */

/* Makes a file below the test's folder, with the folders on its path. */
static void make_file(const char *path, const char *text) {
    char command[512], name[256];
    (void) snprintf(name, sizeof(name), "%s/%s", root, path);
    (void) snprintf(command, sizeof(command), "mkdir -p \"$(dirname '%s')\"", name);
    ck_assert_int_eq(system(command), 0);
    FILE *f = fopen(name, "w");
    ck_assert_ptr_nonnull(f);
    (void) fputs(text, f);
    (void) fclose(f);
}

static const char *from_environment(void *arg, const char *name) {
    (void) arg;
    return getenv(name);
}

/* Counts the accelerators of one kind while the environment variable `name` has the value `value`,
 * or is not set if `value` is NULL. */
static uint32_t count_kind(enum accelerator kind, const char *name, const char *value) {
    char sys[128];
    (void) snprintf(sys, sizeof(sys), "%s/sys", root);
    if (value != NULL) (void) setenv(name, value, 1);
    uint32_t n = accelerator_count(kind, sys, dev, from_environment, NULL);
    if (value != NULL) (void) unsetenv(name);
    return n;
}

START_TEST(amd_gpus) {
    static const char nodes[] = "sys/class/kfd/kfd/topology/nodes";
    ck_assert_uint_eq(count_kind(ACCELERATOR_AMD, "", NULL), 0);
    for (int i = 0; i < 6; i++) { /* node 0 is a CPU; node 5 is a GPU of another container */
        char path[128], text[128];
        (void) snprintf(path, sizeof(path), "%s/%d/properties", nodes, i);
        (void) snprintf(text, sizeof(text),
                        "cpu_cores_count %d\nsimd_count %d\ndrm_render_minor %d\n",
                        i == 0 ? 64 : 0, i == 0 ? 0 : 304, i == 0 ? 0 : 127 + i);
        make_file(path, text);
        (void) snprintf(path, sizeof(path), "dev/dri/renderD%d", 127 + i);
        if (i > 0 && i < 5) make_file(path, "");
    }
    ck_assert_uint_eq(count_kind(ACCELERATOR_AMD, "", NULL), 4);
    ck_assert_uint_eq(count_kind(ACCELERATOR_AMD, "CUDA_VISIBLE_DEVICES", "0,3"), 2);
    ck_assert_uint_eq(count_kind(ACCELERATOR_AMD, "HIP_VISIBLE_DEVICES", "1, 2,9,3"), 2);
    ck_assert_uint_eq(count_kind(ACCELERATOR_AMD, "HIP_VISIBLE_DEVICES", ""), 0);
    ck_assert_uint_eq(count_kind(ACCELERATOR_AMD, "ROCR_VISIBLE_DEVICES", "GPU-ab12,GPU-cd34"), 2);
    (void) setenv("ROCR_VISIBLE_DEVICES", "2,3", 1);
    ck_assert_uint_eq(count_kind(ACCELERATOR_AMD, "HIP_VISIBLE_DEVICES", "1,2"), 1);
    (void) unsetenv("ROCR_VISIBLE_DEVICES");
    (void) setenv("CUDA_VISIBLE_DEVICES", "0", 1); /* HIP_VISIBLE_DEVICES comes first */
    ck_assert_uint_eq(count_kind(ACCELERATOR_AMD, "HIP_VISIBLE_DEVICES", "0,1,2"), 3);
    (void) unsetenv("CUDA_VISIBLE_DEVICES");
}
END_TEST

/* Makes a render node with its PCI device in /sys, and in /dev. */
static void make_render_node(int minor, const char *address, const char *vendor, int tiles) {
    char path[160], target[160], link[160];
    (void) snprintf(path, sizeof(path), "sys/pci/%s/vendor", address);
    make_file(path, vendor);
    for (int i = 0; i < tiles; i++) {
        (void) snprintf(path, sizeof(path), "sys/pci/%s/tile%d/id", address, i);
        make_file(path, "");
    }
    (void) snprintf(path, sizeof(path), "sys/class/drm/renderD%d/dev", minor);
    make_file(path, "");
    (void) snprintf(target, sizeof(target), "%s/sys/pci/%s", root, address);
    (void) snprintf(link, sizeof(link), "%s/sys/class/drm/renderD%d/device", root, minor);
    ck_assert_int_eq(symlink(target, link), 0);
    (void) snprintf(path, sizeof(path), "dev/dri/renderD%d", minor);
    make_file(path, "");
}

START_TEST(intel_gpus) {
    ck_assert_uint_eq(count_kind(ACCELERATOR_INTEL, "", NULL), 0);
    make_render_node(128, "0000:00:02.0", "0x8086\n", 0);
    make_render_node(129, "0000:01:00.0", "0x10de\n", 0);
    ck_assert_uint_eq(count_kind(ACCELERATOR_INTEL, "", NULL), 1); /* only the one on the CPU */
    make_render_node(130, "0000:3a:00.0", "0x8086\n", 2);
    make_render_node(131, "0000:9a:00.0", "0x8086\n", 2);
    ck_assert_uint_eq(count_kind(ACCELERATOR_INTEL, "", NULL), 4);
    ck_assert_uint_eq(count_kind(ACCELERATOR_INTEL, "ZE_FLAT_DEVICE_HIERARCHY", "COMPOSITE"), 2);
    ck_assert_uint_eq(count_kind(ACCELERATOR_INTEL, "ZE_AFFINITY_MASK", "0,2,3"), 3);
    ck_assert_uint_eq(count_kind(ACCELERATOR_INTEL, "ZE_AFFINITY_MASK", "0.0,0.1"), 2);
    ck_assert_uint_eq(count_kind(ACCELERATOR_INTEL, "ZE_AFFINITY_MASK", "7"), 0);
}
END_TEST

START_TEST(ascend_npus) {
    touch(dev, "davinci_manager");
    ck_assert_uint_eq(count_kind(ACCELERATOR_ASCEND, "", NULL), 0);
    touch(dev, "davinci0");
    touch(dev, "davinci7");
    ck_assert_uint_eq(count_kind(ACCELERATOR_ASCEND, "", NULL), 2);
    ck_assert_uint_eq(count_kind(ACCELERATOR_ASCEND, "ASCEND_RT_VISIBLE_DEVICES", "1"), 1);
}
END_TEST

int main(void) {
    Suite *s = suite_create("devices");
    TCase *t = tcase_create("count");
    tcase_set_timeout(t, 60); /* one test runs a compiler */
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, nothing_at_all);
    tcase_add_test(t, device_files);
    tcase_add_test(t, driver_entries);
    tcase_add_test(t, nvml_decides);
    tcase_add_test(t, visible_devices);
    tcase_add_test(t, places_on_the_bus);
    tcase_add_test(t, places_that_the_driver_tells);
    tcase_add_test(t, cpus_follow_the_affinity);
    tcase_add_test(t, amd_gpus);
    tcase_add_test(t, intel_gpus);
    tcase_add_test(t, ascend_npus);
    suite_add_tcase(s, t);
    return run_suite(s);
}
