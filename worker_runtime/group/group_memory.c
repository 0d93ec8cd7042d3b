/* Allocates memory that suits a group's backend, and registers memory with the backend. For a
 * backend that uses host memory, the memory comes from aligned_alloc(), and to register it does
 * nothing. */
#include "worker_runtime/group/group.h"

#include <errno.h>
#include <stdlib.h>

#define HOST_ALIGNMENT ((size_t) 64) /* bytes; one cache line */

struct crunrt_registration {
    struct crunrt_group *group;
    crunrt_register_kind kind;
    void *handle; /* the backend's handle; NULL if the backend registers no memory */
};

int crunrt_group_memory_new(crunrt_group *group, size_t size, void **out) {
    struct cr_error *err = rt_last_error();
    if (group == NULL) return rt_fail_null("allocate memory", "the group");
    if (out == NULL) return rt_fail_null("allocate memory", "out");
    if (size == 0) return cr_fail(err, -EINVAL, "allocate memory: the size is 0");
    if (group->backend->memory_new != NULL)
        return group->backend->memory_new(group->state, size, out, err);
    size_t rounded = (size + HOST_ALIGNMENT - 1) / HOST_ALIGNMENT * HOST_ALIGNMENT;
    void *memory = rounded >= size ? aligned_alloc(HOST_ALIGNMENT, rounded) : NULL;
    if (memory == NULL)
        return cr_fail(err, -ENOMEM, "allocate %zu bytes of memory: out of memory", size);
    *out = memory;
    return 0;
}

void crunrt_group_memory_free(crunrt_group *group, void *memory) {
    if (group == NULL || memory == NULL) return;
    if (group->backend->memory_free != NULL)
        group->backend->memory_free(group->state, memory);
    else
        free(memory);
}

/* Registers the memory with the backend. If that fails, the group breaks, unless the failure is a
 * refusal. */
static int register_with_backend(struct crunrt_group *g, void *buffer, size_t size,
                                 crunrt_register_kind kind, void **handle) {
    struct cr_error *err = rt_last_error();
    if (g->backend->register_memory == NULL) return 0;
    int rc = g->backend->register_memory(g->state, buffer, size, kind, handle, err);
    if (rc == 0) return 0;
    if (rc == -ENOTSUP) return cr_wrap(err, "register memory in group '%s'", g->name);
    return group_break(g, "register", "register", err);
}

int crunrt_group_register(crunrt_group *group, void *buffer, size_t size, crunrt_register_kind kind,
                          crunrt_registration **out) {
    struct cr_error *err = rt_last_error();
    if (group == NULL) return rt_fail_null("register memory", "the group");
    if (buffer == NULL) return rt_fail_null("register memory", "the buffer");
    if (out == NULL) return rt_fail_null("register memory", "out");
    if (size == 0 || (unsigned) kind > CRUNRT_REGISTER_SYMMETRIC)
        return cr_fail(err, -EINVAL, "register memory: the size is 0, or kind %d is unknown",
                       (int) kind);
    if (group->broken.code != 0)
        return cr_fail(err, -EPIPE, "register memory in group '%s': the group is already broken",
                       group->name);
    struct crunrt_registration *r = calloc(1, sizeof(*r));
    if (r == NULL) return cr_fail(err, -ENOMEM, "register memory: out of memory");
    r->group = group;
    r->kind = kind;
    int rc = register_with_backend(group, buffer, size, kind, &r->handle);
    if (rc < 0) {
        free(r);
        return rc;
    }
    *out = r;
    return 0;
}

void crunrt_registration_free(crunrt_registration *r) {
    if (r == NULL) return;
    const struct crunrt_backend *backend = r->group->backend;
    if (r->handle != NULL) backend->deregister_memory(r->group->state, r->kind, r->handle);
    free(r);
}
