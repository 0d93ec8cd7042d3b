/* Finds out by NVML whether each GPU answers, and whether it has uncorrected memory errors. The
 * library is loaded with dlopen(3), because most machines do not have it. This code runs in the
 * process of one check, so a driver that hangs delays nothing else. */
#include "agent/health/judge_internal.h"

#include <dlfcn.h>
#include <stdio.h>

/* numbers of nvml.h */
#define NVML_NO_DRIVER        9
#define NVML_NO_LIBRARY       12
#define NVML_UNCORRECTED      1 /* selects memory errors that were not corrected */
#define NVML_SINCE_DRIVER     0 /* selects NVML's counter that starts at 0 when the driver is
                                 * loaded */

struct nvml {
    int (*init)(void);
    int (*count)(unsigned *);
    int (*handle)(unsigned, void **);
    int (*ecc)(void *, int kind, int counter, unsigned long long *);
    int (*pending)(void *, int *);
    const char *(*text)(int);
};

static bool load(struct nvml *n) {
    void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) return false;
    *(void **) &n->init = dlsym(library, "nvmlInit_v2");
    *(void **) &n->count = dlsym(library, "nvmlDeviceGetCount_v2");
    *(void **) &n->handle = dlsym(library, "nvmlDeviceGetHandleByIndex_v2");
    *(void **) &n->ecc = dlsym(library, "nvmlDeviceGetTotalEccErrors");
    *(void **) &n->pending = dlsym(library, "nvmlDeviceGetRetiredPagesPendingStatus");
    *(void **) &n->text = dlsym(library, "nvmlErrorString");
    return n->init != NULL && n->count != NULL && n->handle != NULL && n->text != NULL;
}

static void check_device(struct health_facts *f, const struct nvml *n, unsigned i) {
    void *device = NULL;
    unsigned long long errors = 0;
    int pending = 0, rc = n->handle(i, &device);
    if (rc != 0) {
        (void) snprintf(f->gpu_error, sizeof(f->gpu_error), "GPU %u does not answer: %.80s", i,
                        n->text(rc));
        return;
    }
    /* n->ecc() and n->pending() fail on GPUs that do not count memory errors; such a GPU passes */
    if (n->ecc != NULL && n->ecc(device, NVML_UNCORRECTED, NVML_SINCE_DRIVER, &errors) != 0) {
        errors = 0;
    }
    if (errors > 0) {
        (void) snprintf(f->gpu_error, sizeof(f->gpu_error), "GPU %u has %llu uncorrected memory "
                        "errors (ECC); reset it (nvidia-smi -r) or replace it", i, errors);
    } else if (n->pending != NULL && n->pending(device, &pending) == 0 && pending == 1) {
        (void) snprintf(f->gpu_error, sizeof(f->gpu_error), "GPU %u waits for a reset to retire "
                        "bad memory pages; reset it (nvidia-smi -r)", i);
    }
}

void health_ask_nvml(struct health_facts *f) {
    struct nvml n = {0};
    unsigned count = 0;
    if (!load(&n)) return;
    int rc = n.init();
    if (rc == NVML_NO_DRIVER || rc == NVML_NO_LIBRARY) return; /* a machine without GPUs */
    if (rc == 0) rc = n.count(&count);
    if (rc != 0) {
        (void) snprintf(f->gpu_error, sizeof(f->gpu_error), "the driver does not answer: %.100s",
                        n.text(rc));
        return;
    }
    f->gpus_of_nvml = count;
    for (unsigned i = 0; i < count && f->gpu_error[0] == '\0'; i++) check_device(f, &n, i);
}
