/* Values: byte strings with a reference count, so that a big value is not copied.
 *
 * A value is shared by the key that holds it and by replies that are not sent completely. While a
 * big value is being received, it belongs to the connection. A value of STORE_LEND_MIN bytes or
 * more begins at a page boundary and shares no page with other data, so that the server can lend
 * it: the kernel sends from its pages without copying them (store/server/lend.c). The bytes of a
 * lent page must never change again, because the kernel may send from the page even after the value
 * is freed. */
#ifndef STORE_KEYSPACE_VALUE_H
#define STORE_KEYSPACE_VALUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct store_value {
    /* NULL before store_value_release(); after it, the address of the count from which the value's
     * cost is subtracted when the value is freed */
    size_t *account;
    uint32_t refs;
    uint32_t len; /* number of bytes in use */
    uint32_t cap; /* number of bytes that are allocated */
    uint32_t lent; /* 1 once the value's pages were lent to the kernel; the value's bytes must then
                    * not change any more */
    uint8_t data[];
};

/* Smallest and largest size in bytes of a value that is lent. Smaller values are not lent, because
 * the two system calls of lending cost more time than the copy. Larger values are not lent, because
 * copying is faster if a core is free: clients read values of 16 MiB at 3.9 GB/s if they are
 * copied, and at 2.4 GB/s if they are lent, perhaps because one core fetches from memory while
 * another copies from the cache. Values of 1 MiB are lent and read at 4.6 GB/s; torch's server
 * reaches 1.6 GB/s (docs/benchmarks.md, "The store"). */
#define STORE_LEND_MIN ((size_t) 128 << 10)
#define STORE_LEND_MAX ((size_t) 4 << 20)

static inline bool store_value_lendable(const struct store_value *v) {
    return v->len >= STORE_LEND_MIN && v->len <= STORE_LEND_MAX;
}

/* Returns a value with memory for `cap` bytes, refs 1 and len 0, or NULL if memory is short. */
struct store_value *store_value_new(size_t cap);
/* Makes room for `cap` bytes, which is more than `v` has. The value must have one reference and
 * must not have been lent. Returns the value, which may have moved. If memory is short, returns
 * NULL, and `v` stays as it was. */
struct store_value *store_value_grow(struct store_value *v, size_t cap);
struct store_value *store_value_ref(struct store_value *v);
void store_value_unref(struct store_value *v); /* v may be NULL */

/* Returns approximately how many bytes of memory a value uses; 0 if `v` is NULL. */
size_t store_value_cost(const struct store_value *v);
/* Returns approximately how many bytes of memory a value with room for `cap` bytes would use. */
size_t store_value_cost_of(size_t cap);

#endif
