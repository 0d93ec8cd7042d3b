/* The program crun-xid: waits for NVML's events about critical errors of GPUs, and writes each to
 * stdout. The library is loaded with dlopen(3), because most machines do not have it. */
#include "agent/evidence/xid_program.h"

#include "base/time/clock.h"

#include <dlfcn.h>
#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#define GPUS_MAX 64
#define WAIT_MS  3600000u /* longest time in ms of one wait; the program then waits again */
#define TEXT_MAX 200      /* bytes of a packet */

/* numbers of nvml.h */
#define NVML_TIMEOUT  10
#define NVML_GPU_LOST 15
#define NVML_XID      UINT64_C(8) /* nvmlEventTypeXidCriticalError */

/* The layout of nvmlEventData_t, for nvmlEventSetWait_v2(). */
struct event {
    void *device;
    unsigned long long type, xid;
    unsigned gpu_instance, compute_instance;
};

/* The layout of nvmlPciInfo_t. */
struct pci {
    char bus_id_legacy[16];
    unsigned domain, bus, device, device_id, subsystem_id;
    char bus_id[32];
};

struct nvml {
    int (*init)(void);
    int (*count)(unsigned *);
    int (*handle)(unsigned, void **);
    int (*pci)(void *, struct pci *);
    int (*set_create)(void **);
    int (*registers)(void *device, unsigned long long types, void *set);
    int (*set_wait)(void *set, struct event *, unsigned timeout_ms);
    void *devices[GPUS_MAX]; /* handles of the GPUs, by index */
    unsigned device_count;
    void *set;
};

static bool load(struct nvml *n) {
    void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) return false;
    *(void **) &n->init = dlsym(library, "nvmlInit_v2");
    *(void **) &n->count = dlsym(library, "nvmlDeviceGetCount_v2");
    *(void **) &n->handle = dlsym(library, "nvmlDeviceGetHandleByIndex_v2");
    *(void **) &n->pci = dlsym(library, "nvmlDeviceGetPciInfo_v3");
    *(void **) &n->set_create = dlsym(library, "nvmlEventSetCreate");
    *(void **) &n->registers = dlsym(library, "nvmlDeviceRegisterEvents");
    *(void **) &n->set_wait = dlsym(library, "nvmlEventSetWait_v2");
    return n->init != NULL && n->count != NULL && n->handle != NULL && n->set_create != NULL &&
           n->registers != NULL && n->set_wait != NULL;
}

/* Registers all GPUs that can report critical errors. Returns how many can. */
static unsigned register_all(struct nvml *n) {
    unsigned registered = 0;
    if (n->init() != 0 || n->count(&n->device_count) != 0 || n->set_create(&n->set) != 0) return 0;
    if (n->device_count > GPUS_MAX) n->device_count = GPUS_MAX;
    for (unsigned i = 0; i < n->device_count; i++) {
        if (n->handle(i, &n->devices[i]) != 0) n->devices[i] = NULL;
        else if (n->registers(n->devices[i], NVML_XID, n->set) == 0) registered++;
    }
    return registered;
}

/* Writes a packet to the pipe, which is in packet mode and does not block. If the pipe is full,
 * because the agent has not read hundreds of packets, drops this packet. */
__attribute__((format(printf, 1, 2))) static void tell(const char *fmt, ...) {
    char packet[TEXT_MAX];
    va_list ap;
    int len = snprintf(packet, sizeof(packet), "%" PRId64 " ", cr_monotonic_ns());
    va_start(ap, fmt);
    int more = vsnprintf(packet + len, sizeof(packet) - (size_t) len, fmt, ap);
    va_end(ap);
    len = more < (int) sizeof(packet) - len ? len + more : (int) sizeof(packet) - 1;
    if (write(STDOUT_FILENO, packet, (size_t) len) < 0) return;
}

static void tell_event(const struct nvml *n, const struct event *e) {
    struct pci pci = {0};
    unsigned i = 0;
    while (i < n->device_count && n->devices[i] != e->device) i++;
    if (n->pci == NULL || n->pci(e->device, &pci) != 0) pci.bus_id[0] = '\0';
    pci.bus_id[sizeof(pci.bus_id) - 1] = '\0';
    tell("NVML: Xid %llu of GPU %u (PCI %s)", e->xid, i, pci.bus_id[0] != '\0' ? pci.bus_id : "?");
}

int xid_main(void) {
    struct nvml n = {0};
    struct event e;
    int rc;
    (void) setpgid(0, 0); /* the terminal's ^C is not for this process */
    (void) prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (!load(&n) || register_all(&n) == 0) return 0;
    for (;;) {
        memset(&e, 0, sizeof(e));
        rc = n.set_wait(n.set, &e, WAIT_MS);
        if (rc == 0 && (e.type & NVML_XID) != 0) tell_event(&n, &e);
        if (rc != 0 && rc != NVML_TIMEOUT) break;
    }
    if (rc == NVML_GPU_LOST) tell("NVML: a GPU is lost: it has fallen off the bus or has no power");
    return 1;
}
