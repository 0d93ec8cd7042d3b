#include "launcher/device_count.h"

#include "base/cleanup.h"
#include "base/parse.h"

#include <ctype.h>
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define GPUS_MAX        1024u
#define UUID_MAX        96 /* bytes, NUL included; NVML's own limit */
#define CPUS_MAX        (1 << 16)
#define NVML_NO_DRIVER  9
#define NVML_NO_LIBRARY 12

const struct device_places device_places_default = {
    .nvml = "libnvidia-ml.so.1",
    .dev = "/dev",
    .proc_nvidia = "/proc/driver/nvidia",
};

/* ---- CPUs ---- */

/* The kernel wants a mask at least as large as its own, whose size it does not tell: double it. */
uint32_t device_cpu_count(void) {
    for (int cpus = 1024; cpus <= CPUS_MAX; cpus *= 2) {
        cpu_set_t *set = CPU_ALLOC((size_t) cpus);
        if (set == NULL) break;
        size_t size = CPU_ALLOC_SIZE((size_t) cpus);
        int rc = sched_getaffinity(0, size, set);
        int n = rc == 0 ? CPU_COUNT_S(size, set) : 0;
        CPU_FREE(set);
        if (n > 0) return (uint32_t) n;
        if (errno != EINVAL) break;
    }
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    return online > 0 ? (uint32_t) online : 1;
}

/* ---- the machine's GPUs ---- */

struct gpus {
    uint32_t count;
    char (*uuids)[UUID_MAX]; /* `count` of them, or NULL if unknown */
};

struct nvml {
    void *library;
    int (*init)(void);
    int (*shutdown)(void);
    int (*get_count)(unsigned *);
    int (*get_handle)(unsigned, void **);
    int (*get_uuid)(void *, char *, unsigned);
    const char *(*error_string)(int);
};

static int nvml_load(struct nvml *n, const char *name) {
    n->library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (n->library == NULL) return -ENOENT;
    *(void **) &n->init = dlsym(n->library, "nvmlInit_v2");
    *(void **) &n->shutdown = dlsym(n->library, "nvmlShutdown");
    *(void **) &n->get_count = dlsym(n->library, "nvmlDeviceGetCount_v2");
    *(void **) &n->get_handle = dlsym(n->library, "nvmlDeviceGetHandleByIndex_v2");
    *(void **) &n->get_uuid = dlsym(n->library, "nvmlDeviceGetUUID");
    *(void **) &n->error_string = dlsym(n->library, "nvmlErrorString");
    return n->init != NULL && n->shutdown != NULL && n->get_count != NULL ? 0 : -ENOENT;
}

static void nvml_read_uuids(const struct nvml *n, struct gpus *g) {
    if (n->get_handle == NULL || n->get_uuid == NULL || g->count == 0) return;
    char(*uuids)[UUID_MAX] = calloc(g->count, sizeof(*uuids));
    if (uuids == NULL) return;
    for (unsigned i = 0; i < g->count; i++) {
        void *device = NULL;
        if (n->get_handle(i, &device) != 0 || n->get_uuid(device, uuids[i], UUID_MAX) != 0) {
            free(uuids);
            return;
        }
    }
    g->uuids = uuids;
}

/* 1 = counted, 0 = NVML cannot tell (no library, no driver), negative = the driver is broken. */
static int count_by_nvml(const char *name, struct gpus *g, struct cr_error *err) {
    struct nvml n = {0};
    int answer = 0;
    if (nvml_load(&n, name) == 0) {
        unsigned count = 0;
        int code = n.init();
        if (code == 0) {
            code = n.get_count(&count);
            if (code == 0) {
                g->count = count < GPUS_MAX ? count : GPUS_MAX;
                nvml_read_uuids(&n, g);
                answer = 1;
            }
            (void) n.shutdown();
        }
        if (code != 0 && code != NVML_NO_DRIVER && code != NVML_NO_LIBRARY) {
            answer = cr_fail(err, -ENODEV,
                             "cannot count GPUs: the NVIDIA driver answers '%s' (NVML code %d); "
                             "nvidia-smi should show the same, or give --nproc-per-node a number",
                             n.error_string != NULL ? n.error_string(code) : "?", code);
        }
    }
    if (n.library != NULL) (void) dlclose(n.library);
    return answer;
}

static int is_device_file(const char *name) {
    if (strncmp(name, "nvidia", 6) != 0 || name[6] == '\0') return 0;
    for (name += 6; *name != '\0'; name++) {
        if (!isdigit((unsigned char) *name)) return 0;
    }
    return 1;
}

static int is_bus_id(const char *name) { return isxdigit((unsigned char) name[0]) != 0; }

static uint32_t count_entries(const char *folder, int (*counts)(const char *name)) {
    DIR *d = opendir(folder);
    if (d == NULL) return 0;
    uint32_t n = 0;
    for (struct dirent *e; (e = readdir(d)) != NULL && n < GPUS_MAX;)
        n += counts(e->d_name) ? 1 : 0;
    (void) closedir(d);
    return n;
}

static int count_machine(const struct device_places *p, struct gpus *g, struct cr_error *err) {
    int rc = count_by_nvml(p->nvml, g, err);
    if (rc != 0) return rc < 0 ? rc : 0;
    g->count = count_entries(p->dev, is_device_file);
    if (g->count > 0) return 0;
    char gpus[512];
    (void) snprintf(gpus, sizeof(gpus), "%s/gpus", p->proc_nvidia);
    g->count = count_entries(gpus, is_bus_id);
    return 0;
}

/* ---- CUDA_VISIBLE_DEVICES ---- */

/* One entry, blanks trimmed. Returns 0 when there is none left. */
static int next_entry(const char **at, char out[UUID_MAX]) {
    if (*at == NULL) return 0;
    const char *start = *at, *end = strchr(start, ',');
    *at = end == NULL ? NULL : end + 1;
    size_t n = end == NULL ? strlen(start) : (size_t) (end - start);
    while (n > 0 && isspace((unsigned char) *start)) start++, n--;
    while (n > 0 && isspace((unsigned char) start[n - 1])) n--;
    if (n >= UUID_MAX) n = UUID_MAX - 1;
    memcpy(out, start, n);
    out[n] = '\0';
    return 1;
}

/* The GPU that an entry names, or -1 if none. UUIDs may be cut short while one GPU only fits. MIG
 * slices are taken at their word (NVML counts cards): each gets a number of its own above the
 * cards. */
static int64_t find_gpu(const struct gpus *g, const char *entry, uint32_t position) {
    int64_t index;
    if (strncmp(entry, "MIG-", 4) == 0) return (int64_t) GPUS_MAX + position;
    if (strncmp(entry, "GPU-", 4) == 0) {
        if (g->uuids == NULL) return (int64_t) GPUS_MAX + position;
        int64_t found = -1;
        for (uint32_t i = 0; i < g->count; i++) {
            if (strncmp(g->uuids[i], entry, strlen(entry)) != 0) continue;
            if (found >= 0) return -1;
            found = i;
        }
        return found;
    }
    if (cr_parse_i64(entry, 0, (int64_t) g->count - 1, &index) < 0) return -1;
    return index;
}

static uint32_t count_visible(const struct gpus *g, const char *list) {
    int64_t seen[GPUS_MAX];
    char entry[UUID_MAX];
    uint32_t n = 0;
    while (n < GPUS_MAX && next_entry(&list, entry)) {
        int64_t gpu = find_gpu(g, entry, n);
        if (gpu < 0) break;
        for (uint32_t i = 0; i < n; i++) {
            if (seen[i] == gpu) return 0;
        }
        seen[n++] = gpu;
    }
    return n;
}

int device_gpu_count(const struct device_places *places, const char *visible_devices,
                     uint32_t *count, struct cr_error *err) {
    struct gpus g = {0};
    if (visible_devices != NULL && visible_devices[0] == '\0') return *count = 0, 0;
    int rc = count_machine(places, &g, err);
    if (rc < 0) return rc;
    *count = visible_devices == NULL || g.count == 0 ? g.count : count_visible(&g, visible_devices);
    free(g.uuids);
    return 0;
}
