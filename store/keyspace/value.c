/* Values: counted references to bytes that are written once.
 *
 *     small:  [ head | bytes ]                     one piece of the heap
 *     big:    [ … | piece | head ][ bytes ][ … ]   the bytes in pages of their own, in a larger piece
 *
 * A big value's pages may be lent to the kernel: its sockets refer to them, instead of copying the
 * bytes, for as long as some client has not read its reply; perhaps after the value is gone. So lent
 * pages are never written again. When the value is freed they are left to the kernel, and the
 * heap's next user of that address gets fresh ones. */
#include "store/wire/wire.h"

#include <stddef.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define ALLOCATOR_ADDS 16

static size_t page_size(void) { return (size_t) sysconf(_SC_PAGESIZE); }

static size_t whole_pages(size_t n) { return (n + page_size() - 1) / page_size() * page_size(); }

struct big {
    void *piece; /* as malloc() gave it */
    struct store_value value;
};

static struct big *big_of(struct store_value *v) {
    return (struct big *) (void *) ((char *) v - offsetof(struct big, value));
}

/* Enough that a page's start is in it with room for the head before and the bytes behind.
 * Not aligned_alloc(): glibc's never gets to know such blocks as common, and maps each anew. */
static size_t big_size(size_t cap) { return sizeof(struct big) + page_size() + whole_pages(cap); }

static struct store_value *new_big(size_t cap) {
    char *piece = malloc(big_size(cap));
    if (piece == NULL) return NULL;
    uintptr_t first = (uintptr_t) piece + sizeof(struct big);
    char *data = piece + sizeof(struct big) + (whole_pages(first) - first);
    struct store_value *v = (void *) (data - offsetof(struct store_value, data));
    big_of(v)->piece = piece;
    return v;
}

struct store_value *store_value_new(size_t cap) {
    if (cap > UINT32_MAX - sizeof(struct store_value)) return NULL;
    struct store_value *v = cap >= STORE_LEND_MIN ? new_big(cap) : malloc(sizeof(*v) + cap);
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
    if (v->lent) (void) madvise(v->data, whole_pages(v->cap), MADV_DONTNEED);
    free(v->cap >= STORE_LEND_MIN ? big_of(v)->piece : v);
}

size_t store_value_cost_of(size_t cap) {
    if (cap >= STORE_LEND_MIN) return ALLOCATOR_ADDS + big_size(cap);
    return ALLOCATOR_ADDS + sizeof(struct store_value) + cap;
}

size_t store_value_cost(const struct store_value *v) {
    return v == NULL ? 0 : store_value_cost_of(v->cap);
}
