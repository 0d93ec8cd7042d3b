/* Values. A value has one of two layouts:
 *
 *     small:  [ header | bytes ]                     one block of the heap
 *     big:    [ … | block | header ][ bytes ][ … ]   the bytes in pages of their own, in a larger
 *                                                    block of the heap
 *
 * Only big values are lent to the kernel. When a value that was lent is freed, its pages are given
 * up with MADV_DONTNEED: the kernel keeps these pages until it has sent them, and the addresses
 * refer to new pages. So a later use of this memory does not change the bytes that are sent. */
#include "store/keyspace/value.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define ALLOCATOR_ADDS 16

static size_t page_size(void) { return (size_t) sysconf(_SC_PAGESIZE); }

static size_t whole_pages(size_t n) { return (n + page_size() - 1) / page_size() * page_size(); }

struct big {
    void *block; /* address that malloc() returned, for free() */
    struct store_value value;
};

static struct big *big_of(struct store_value *v) {
    return (struct big *) (void *) ((char *) v - offsetof(struct big, value));
}

/* Returns the size of the block for a big value: its header, padding up to the next page boundary,
 * and whole pages for the bytes. aligned_alloc() would make the padding unnecessary, but glibc
 * would map and unmap memory for each such block. */
static size_t big_size(size_t cap) { return sizeof(struct big) + page_size() + whole_pages(cap); }

static struct store_value *new_big(size_t cap) {
    char *block = malloc(big_size(cap));
    if (block == NULL) return NULL;
    uintptr_t first = (uintptr_t) block + sizeof(struct big);
    char *data = block + sizeof(struct big) + (whole_pages(first) - first);
    struct store_value *v = (void *) (data - offsetof(struct store_value, data));
    big_of(v)->block = block;
    return v;
}

struct store_value *store_value_new(size_t cap) {
    if (cap > UINT32_MAX - sizeof(struct store_value)) return NULL;
    struct store_value *v = cap >= STORE_LEND_MIN ? new_big(cap) : malloc(sizeof(*v) + cap);
    if (v == NULL) return NULL;
    *v = (struct store_value){.refs = 1, .cap = (uint32_t) cap};
    return v;
}

/* Grows a big value by realloc(), which moves the pages of a large block instead of copying their
 * bytes. The data must begin at a page boundary of the new block; its distance from the start of
 * the block may differ from that in the old block, so the data is moved if necessary. */
static struct store_value *grow_big(struct store_value *v, size_t cap) {
    const size_t header = offsetof(struct store_value, data), len = v->len;
    char *old = big_of(v)->block;
    size_t at = (size_t) ((char *) v->data - old);
    char *block = realloc(old, big_size(cap));
    if (block == NULL) return NULL;
    uintptr_t first = (uintptr_t) block + sizeof(struct big);
    char *data = block + sizeof(struct big) + (whole_pages(first) - first);
    memmove(data - header, block + at - header, header + len);
    v = (void *) (data - header);
    big_of(v)->block = block;
    v->cap = (uint32_t) cap;
    return v;
}

struct store_value *store_value_grow(struct store_value *v, size_t cap) {
    if (cap > UINT32_MAX - sizeof(struct store_value)) return NULL;
    if (v->cap >= STORE_LEND_MIN) return grow_big(v, cap);
    struct store_value *grown = store_value_new(cap);
    if (grown == NULL) return NULL;
    memcpy(grown->data, v->data, v->len);
    grown->len = v->len;
    store_value_unref(v);
    return grown;
}

struct store_value *store_value_ref(struct store_value *v) {
    v->refs++;
    return v;
}

void store_value_unref(struct store_value *v) {
    if (v == NULL || --v->refs > 0) return;
    if (v->account != NULL) *v->account -= store_value_cost(v);
    /* The kernel may still send from the pages of a lent value. After madvise(), other pages are at
     * these addresses, so the memory can be freed. If madvise() fails, for example because the
     * process has locked its memory, the value is not freed. */
    if (v->lent && madvise(v->data, whole_pages(v->cap), MADV_DONTNEED) < 0) return;
    free(v->cap >= STORE_LEND_MIN ? big_of(v)->block : v);
}

size_t store_value_cost_of(size_t cap) {
    if (cap >= STORE_LEND_MIN) return ALLOCATOR_ADDS + big_size(cap);
    return ALLOCATOR_ADDS + sizeof(struct store_value) + cap;
}

size_t store_value_cost(const struct store_value *v) {
    return v == NULL ? 0 : store_value_cost_of(v->cap);
}
