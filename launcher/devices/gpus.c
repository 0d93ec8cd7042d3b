/* Finds CPUs and GPUs. NVML is loaded with dlopen(3) if it is installed, so that crun also runs on
 * machines without the NVIDIA driver. */
#include "launcher/devices/gpus.h"

#include "base/memory.h"
#include "base/process/cpu_mask.h"
#include "base/text/parse.h"

#include <ctype.h>
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define GPUS_MAX        1024u
#define UUID_MAX        96 /* bytes of a GPU's UUID with its NUL, the limit of NVML */
#define NVML_NO_DRIVER  9
#define NVML_NO_LIBRARY 12

const struct device_places device_places_default = {
    .nvml = "libnvidia-ml.so.1",
    .dev = "/dev",
    .proc_nvidia = "/proc/driver/nvidia",
};

/* ---- CPUs ---- */

uint32_t device_cpu_count(void) {
    struct cr_cpu_mask mine;
    if (cr_cpu_allowed(&mine) == 0) return cr_cpu_count(&mine);
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    return online > 0 ? (uint32_t) online : 1;
}

/* ---- the machine's GPUs ---- */

/* The layout of nvmlPciInfo_t in nvml.h. */
struct nvml_pci {
    char bus_id_legacy[16];
    unsigned domain, bus, device, device_id, subsystem_id;
    char bus_id[32];
};

struct nvml {
    void *library;
    int (*init)(void);
    int (*shutdown)(void);
    int (*get_count)(unsigned *);
    int (*get_handle)(unsigned, void **);
    int (*get_handle_by_uuid)(const char *, void **);
    int (*get_card_of_slice)(void *, void **);
    int (*get_uuid)(void *, char *, unsigned);
    int (*get_pci)(void *, struct nvml_pci *);
    const char *(*error_string)(int);
};

struct gpus {
    uint32_t count;
    char (*uuids)[UUID_MAX];            /* [count]; NULL if not all UUIDs are known */
    char (*bus_ids)[DEVICE_BUS_ID_MAX]; /* [count]; NULL if not all bus ids are known */
    struct nvml nvml;                   /* the NVML library and its functions; all zero unless NVML
                                         * has counted the GPUs */
};

static int nvml_load(struct nvml *n, const char *name) {
    n->library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (n->library == NULL) return -ENOENT;
    *(void **) &n->init = dlsym(n->library, "nvmlInit_v2");
    *(void **) &n->shutdown = dlsym(n->library, "nvmlShutdown");
    *(void **) &n->get_count = dlsym(n->library, "nvmlDeviceGetCount_v2");
    *(void **) &n->get_handle = dlsym(n->library, "nvmlDeviceGetHandleByIndex_v2");
    *(void **) &n->get_handle_by_uuid = dlsym(n->library, "nvmlDeviceGetHandleByUUID");
    *(void **) &n->get_card_of_slice =
        dlsym(n->library, "nvmlDeviceGetDeviceHandleFromMigDeviceHandle");
    *(void **) &n->get_uuid = dlsym(n->library, "nvmlDeviceGetUUID");
    *(void **) &n->get_pci = dlsym(n->library, "nvmlDeviceGetPciInfo_v3");
    *(void **) &n->error_string = dlsym(n->library, "nvmlErrorString");
    if (n->init != NULL && n->shutdown != NULL && n->get_count != NULL) return 0;
    (void) dlclose(n->library);
    *n = (struct nvml){0};
    return -ENOENT;
}

/* Reads the PCI address of a GPU and writes it to `out` in the form of sysfs, such as
 * "0000:3b:00.0". It is formatted from the numbers that NVML returns, because NVML's own text has
 * eight digits before the first colon. Returns 0 or -ENODEV. */
static int nvml_read_bus_id(const struct nvml *n, void *device, char out[DEVICE_BUS_ID_MAX]) {
    struct nvml_pci pci;
    out[0] = '\0';
    if (n->get_pci == NULL || n->get_pci(device, &pci) != 0) return -ENODEV;
    (void) snprintf(out, DEVICE_BUS_ID_MAX, "%04x:%02x:%02x.0", pci.domain, pci.bus & 0xff,
                    pci.device & 0xff);
    return 0;
}

/* Reads the UUIDs and the bus ids of all GPUs. If the UUID of one GPU cannot be read, sets g->uuids
 * to NULL: with an incomplete list, an entry of CUDA_VISIBLE_DEVICES could be matched to a wrong
 * GPU. If the bus id of one GPU cannot be read, sets g->bus_ids to NULL. */
static void nvml_read_names(struct gpus *g) {
    const struct nvml *n = &g->nvml;
    if (n->get_handle == NULL || g->count == 0) return;
    g->uuids = n->get_uuid != NULL ? calloc(g->count, sizeof(*g->uuids)) : NULL;
    g->bus_ids = calloc(g->count, sizeof(*g->bus_ids));
    for (unsigned i = 0; i < g->count; i++) {
        void *device = NULL;
        int found = n->get_handle(i, &device) == 0;
        if (g->uuids != NULL && (!found || n->get_uuid(device, g->uuids[i], UUID_MAX) != 0)) {
            free(g->uuids);
            g->uuids = NULL;
        }
        if (g->bus_ids != NULL && (!found || nvml_read_bus_id(n, device, g->bus_ids[i]) < 0)) {
            free(g->bus_ids);
            g->bus_ids = NULL;
        }
    }
}

/* Counts the GPUs with NVML. `name` is the file name of its library. Returns 1 if the GPUs are
 * counted; 0 if NVML or the driver is missing; or -ENODEV, and sets err, if the driver does not
 * work. */
static int count_by_nvml(const char *name, struct gpus *g, struct cr_error *err) {
    struct nvml *n = &g->nvml;
    unsigned count = 0;
    if (nvml_load(n, name) < 0) return 0;
    int code = n->init();
    if (code == 0) {
        code = n->get_count(&count);
        if (code != 0) (void) n->shutdown();
    }
    if (code == 0) {
        g->count = count < GPUS_MAX ? count : GPUS_MAX;
        nvml_read_names(g);
        return 1;
    }
    const char *why = n->error_string != NULL ? n->error_string(code) : "?";
    int answer = 0;
    if (code != NVML_NO_DRIVER && code != NVML_NO_LIBRARY) {
        answer = cr_fail(err, -ENODEV,
                         "cannot count GPUs: the NVIDIA driver answers '%s' (NVML code %d); "
                         "nvidia-smi should show the same, or give --nproc-per-node a number",
                         why, code);
    }
    (void) dlclose(n->library);
    *n = (struct nvml){0};
    return answer;
}

static void gpus_done(struct gpus *g) {
    if (g->nvml.library != NULL) {
        (void) g->nvml.shutdown();
        (void) dlclose(g->nvml.library);
    }
    free(g->uuids);
    free(g->bus_ids);
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

static int compare_bus_ids(const void *a, const void *b) { return strcmp(a, b); }

/* Stores in g->bus_ids the names of the folders in /proc/driver/nvidia/gpus, which are bus ids.
 * They are sorted, because the driver numbers its GPUs in the order of their bus ids. */
static void read_driver_entries(const char *folder, struct gpus *g) {
    DIR *d = opendir(folder);
    uint32_t n = 0;
    g->bus_ids = g->count > 0 ? calloc(g->count, sizeof(*g->bus_ids)) : NULL;
    for (struct dirent *e; d != NULL && g->bus_ids != NULL && (e = readdir(d)) != NULL;) {
        if (!is_bus_id(e->d_name)) continue;
        if (n < g->count) (void) snprintf(g->bus_ids[n], DEVICE_BUS_ID_MAX, "%.23s", e->d_name);
        n++;
    }
    if (d != NULL) (void) closedir(d);
    if (g->bus_ids == NULL) return;
    qsort(g->bus_ids, n < g->count ? n : g->count, sizeof(*g->bus_ids), compare_bus_ids);
    if (n == g->count) return;
    /* /proc and /dev list different numbers of cards. In a container, /proc may list all cards of
     * the host, and /dev only the cards of the container. It is unknown which bus ids the
     * container's cards have, so no bus id is used. */
    free(g->bus_ids);
    g->bus_ids = NULL;
}

static int count_machine(const struct device_places *p, struct gpus *g, struct cr_error *err) {
    int rc = count_by_nvml(p->nvml, g, err);
    if (rc != 0) return rc < 0 ? rc : 0;
    char folder[512];
    (void) snprintf(folder, sizeof(folder), "%s/gpus", p->proc_nvidia);
    g->count = count_entries(p->dev, is_device_file);
    if (g->count == 0) g->count = count_entries(folder, is_bus_id);
    read_driver_entries(folder, g);
    return 0;
}

/* ---- CUDA_VISIBLE_DEVICES ---- */

/* Copies the next entry of a comma-separated list, without the blanks around it, to `out` and moves
 * *at to the text after it. Returns 1; or 0 if the list has no more entries. */
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

/* Returns the number of the GPU that an entry of CUDA_VISIBLE_DEVICES names, or -1 if there is no
 * such GPU. An entry may be the beginning of a UUID, if only one GPU's UUID begins so. `position`
 * is the entry's position in the list. A MIG slice gets the number GPUS_MAX + position, because
 * NVML's list has only whole cards. If the GPUs' UUIDs are unknown, an entry that is a UUID gets
 * GPUS_MAX + position, too. */
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

/* Writes to `out` the bus id of the card that `entry` names, or "" if that bus id is unknown. If
 * `entry` names a MIG slice, this is the card to which the slice belongs. `gpu` is the result of
 * find_gpu() for `entry`. */
static void find_bus_id(const struct gpus *g, const char *entry, int64_t gpu,
                        char out[DEVICE_BUS_ID_MAX]) {
    const struct nvml *n = &g->nvml;
    void *slice = NULL, *card = NULL;
    out[0] = '\0';
    if (gpu < (int64_t) g->count) {
        if (g->bus_ids != NULL) memcpy(out, g->bus_ids[gpu], DEVICE_BUS_ID_MAX);
    } else if (n->get_handle_by_uuid != NULL && n->get_card_of_slice != NULL &&
               n->get_handle_by_uuid(entry, &slice) == 0 &&
               n->get_card_of_slice(slice, &card) == 0) {
        (void) nvml_read_bus_id(n, card, out);
    }
}

static uint32_t list_visible(const struct gpus *g, const char *list, struct device_gpu *out) {
    int64_t seen[GPUS_MAX];
    char entry[UUID_MAX];
    uint32_t n = 0;
    while (n < GPUS_MAX && next_entry(&list, entry)) {
        int64_t gpu = find_gpu(g, entry, n);
        if (gpu < 0) break;
        for (uint32_t i = 0; i < n; i++) {
            if (seen[i] == gpu) return 0;
        }
        find_bus_id(g, entry, gpu, out[n].bus_id);
        seen[n++] = gpu;
    }
    return n;
}

static uint32_t list_all(const struct gpus *g, struct device_gpu *out) {
    for (uint32_t i = 0; i < g->count; i++) find_bus_id(g, "", i, out[i].bus_id);
    return g->count;
}

int device_gpus(const struct device_places *places, const char *visible_devices,
                struct device_gpu **list, uint32_t *count, struct cr_error *err) {
    struct gpus g = {0};
    *list = NULL;
    if (visible_devices != NULL && visible_devices[0] == '\0') return *count = 0, 0;
    int rc = count_machine(places, &g, err);
    struct device_gpu *out = rc == 0 ? calloc(GPUS_MAX, sizeof(*out)) : NULL;
    if (rc == 0 && out == NULL) rc = cr_fail(err, -ENOMEM, "cannot list GPUs: out of memory");
    if (rc == 0) {
        int listed = visible_devices != NULL && g.count > 0;
        *count = listed ? list_visible(&g, visible_devices, out) : list_all(&g, out);
        *list = out;
    }
    gpus_done(&g);
    return rc;
}

int device_gpu_count(const struct device_places *places, const char *visible_devices,
                     uint32_t *count, struct cr_error *err) {
    struct device_gpu *list;
    int rc = device_gpus(places, visible_devices, &list, count, err);
    free(list);
    return rc;
}
