/* Device, pinned, managed and registered memory.
 *
 * Device memory is mapped twice. The program gets the address of a mapping that the host can
 * neither read nor write, so a program that accesses device memory from the host crashes, as it
 * does with a GPU. The model itself uses the other mapping. HOST_CUDA_PAGEABLE=1 models a machine
 * on which CPU and GPU share one address space (cudaDevAttrPageableMemoryAccess: Grace Hopper, or
 * Linux HMM): there the host may access device memory, and the device may access all memory of the
 * process. Source: CUDA C++ Programming Guide, "Unified Memory Programming", "System-Allocated
 * Memory". */
#include "tests/host_nccl/host.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct block {
    struct block *next;
    char *at, *view;
    size_t size, mapped;
    enum host_memory_kind kind;
    int device;
    bool registered;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct block *blocks;

static bool pageable(void) {
    const char *text = getenv("HOST_CUDA_PAGEABLE");
    return text != NULL && strcmp(text, "1") == 0;
}

static struct block *find(const void *p) {
    for (struct block *b = blocks; b != NULL; b = b->next) {
        if ((const char *) p >= b->at && (const char *) p < b->at + b->size) return b;
    }
    return NULL;
}

void *host_memory_view(const void *p, size_t size) {
    (void) pthread_mutex_lock(&lock);
    const struct block *b = find(p);
    char *view = NULL;
    if (b != NULL && (const char *) p + size <= b->at + b->size)
        view = b->view + ((const char *) p - b->at);
    else if (b == NULL && p != NULL && pageable())
        view = (char *) (uintptr_t) p;
    (void) pthread_mutex_unlock(&lock);
    return view;
}

enum host_memory_kind host_memory_kind_of(const void *p, int *device) {
    (void) pthread_mutex_lock(&lock);
    const struct block *b = find(p);
    enum host_memory_kind kind = b != NULL ? b->kind : HOST_PAGEABLE;
    if (device != NULL) *device = b != NULL ? b->device : -1;
    (void) pthread_mutex_unlock(&lock);
    return kind;
}

static void add(struct block *b) {
    (void) pthread_mutex_lock(&lock);
    b->next = blocks;
    blocks = b;
    (void) pthread_mutex_unlock(&lock);
}

static cudaError_t map_block(struct block *b) {
    int fd = memfd_create("host-nccl-memory", MFD_CLOEXEC);
    if (fd < 0 || ftruncate(fd, (off_t) b->mapped) < 0) {
        if (fd >= 0) (void) close(fd);
        return cudaErrorMemoryAllocation;
    }
    int program = b->kind == HOST_DEVICE && !pageable() ? PROT_NONE : PROT_READ | PROT_WRITE;
    b->at = mmap(NULL, b->mapped, program, MAP_SHARED, fd, 0);
    b->view = mmap(NULL, b->mapped, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    (void) close(fd);
    return b->at == MAP_FAILED || b->view == MAP_FAILED ? cudaErrorMemoryAllocation : cudaSuccess;
}

cudaError_t host_memory_new(enum host_memory_kind kind, size_t size, void **out) {
    struct block *b = calloc(1, sizeof(*b));
    if (b == NULL) return cudaErrorMemoryAllocation;
    size_t page = (size_t) sysconf(_SC_PAGESIZE);
    b->kind = kind;
    b->device = host_device();
    b->size = size;
    b->mapped = (size + page - 1) / page * page;
    cudaError_t e = map_block(b);
    if (e != cudaSuccess) {
        free(b);
        return e;
    }
    *out = b->at;
    add(b);
    return cudaSuccess;
}

static struct block *take(const void *p, bool registered) {
    (void) pthread_mutex_lock(&lock);
    struct block **at = &blocks;
    while (*at != NULL && ((*at)->at != p || (*at)->registered != registered)) at = &(*at)->next;
    struct block *b = *at;
    if (b != NULL) *at = b->next;
    (void) pthread_mutex_unlock(&lock);
    return b;
}

cudaError_t host_memory_free(void *p) {
    struct block *b = take(p, false);
    if (b == NULL) return cudaErrorInvalidValue;
    (void) munmap(b->at, b->mapped);
    (void) munmap(b->view, b->mapped);
    free(b);
    return cudaSuccess;
}

cudaError_t host_memory_register(void *p, size_t size) {
    struct block *b = calloc(1, sizeof(*b));
    if (b == NULL || p == NULL || size == 0) {
        free(b);
        return cudaErrorInvalidValue;
    }
    *b = (struct block){.at = p, .view = p, .size = size, .kind = HOST_PINNED, .registered = true};
    add(b);
    return cudaSuccess;
}

cudaError_t host_memory_unregister(void *p) {
    struct block *b = take(p, true);
    if (b == NULL) return cudaErrorHostMemoryNotRegistered;
    free(b);
    return cudaSuccess;
}
