/* Values: counted references to bytes that are written once.
 *
 *     small:  [ head | bytes ]                       one piece of the heap
 *     big:    [    unused | head ][ bytes … ][ … ]   pages of its own, the bytes from a page's start
 *
 * A big value's pages may be lent to the kernel: its sockets refer to them, instead of copying the
 * bytes, for as long as some client has not read its reply; perhaps after the value is gone. So lent
 * pages are never written again. When the value is freed they are left to the kernel, and the
 * heap's next user of that address gets fresh ones. */
#include "store/wire.h"

#include <stddef.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define ALLOCATOR_ADDS 16

static size_t page_size(void) { return (size_t) sysconf(_SC_PAGESIZE); }

/* Memory of a big value: one page up to the bytes, and whole pages of bytes. */
static size_t paged_size(size_t cap) {
    size_t page = page_size();
    return page + (cap + page - 1) / page * page;
}

static struct store_value *new_paged(size_t cap) {
    char *pages = aligned_alloc(page_size(), paged_size(cap));
    if (pages == NULL) return NULL;
    return (struct store_value *) (void *) (pages + page_size() -
                                            offsetof(struct store_value, data));
}

struct store_value *store_value_new(size_t cap) {
    if (cap > UINT32_MAX - sizeof(struct store_value)) return NULL;
    struct store_value *v = cap >= STORE_LEND_MIN ? new_paged(cap) : malloc(sizeof(*v) + cap);
    if (v == NULL) return NULL;
    *v = (struct store_value){.refs = 1, .cap = (uint32_t) cap};
    return v;
}

struct store_value *store_value_ref(struct store_value *v) {
    v->refs++;
    return v;
}

void store_value_unref(struct store_value *v) {
    if (v == NULL || --v->refs > 0) return;
    if (v->account != NULL) *v->account -= store_value_cost(v);
    void *memory = v;
    if (v->cap >= STORE_LEND_MIN) memory = v->data - page_size();
    if (v->lent) (void) madvise(v->data, paged_size(v->cap) - page_size(), MADV_DONTNEED);
    free(memory);
}

size_t store_value_cost(const struct store_value *v) {
    if (v == NULL) return 0;
    return ALLOCATOR_ADDS + (v->cap >= STORE_LEND_MIN ? paged_size(v->cap) : sizeof(*v) + v->cap);
}
