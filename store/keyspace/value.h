/* Values: byte strings with a reference count, so that a big value is not copied.
 *
 * A value is shared by the key that holds it and by replies that are not sent completely. While its
 * request arrives, it belongs to the connection that receives it. A value of STORE_LEND_MIN bytes
 * or more begins at a page boundary and shares no page with other data, so that the server can lend
 * it: the kernel sends from its pages without copying them (store/server/lend.c). The bytes of a
 * lent page must never change again, because the kernel may send from the page even after the value
 * is freed. */
#ifndef STORE_KEYSPACE_VALUE_H
#define STORE_KEYSPACE_VALUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct store_value {
    /* sum from which the value's cost is subtracted when the value is freed; or NULL */
    size_t *account;
    uint32_t refs;
    uint32_t len; /* number of bytes in use */
    uint32_t cap; /* number of bytes that are allocated */
    uint32_t lent; /* 1 once the value's pages were lent to the kernel; its bytes must not change
                    * any more */
    uint8_t data[];
};

/* Smallest and largest value, in bytes, that is lent. For a smaller one, the two system calls cost
 * more than the copy. For a larger one, copying is faster if a core is free: clients read values of
 * 16 MiB at 3.9 GB/s if they are copied and at 2.4 GB/s if they are lent, perhaps because one core
 * fetches from memory while another copies from the cache. At 1 MiB, lending reaches 4.6 GB/s, and
 * torch's server 1.6 (docs/benchmarks.md, "The store"). */
#define STORE_LEND_MIN ((size_t) 128 << 10)
#define STORE_LEND_MAX ((size_t) 4 << 20)

static inline bool store_value_lendable(const struct store_value *v) {
    return v->len >= STORE_LEND_MIN && v->len <= STORE_LEND_MAX;
}

/* Returns a value with memory for `cap` bytes, refs 1 and len 0, or NULL if memory is short. */
struct store_value *store_value_new(size_t cap);
struct store_value *store_value_ref(struct store_value *v);
void store_value_unref(struct store_value *v); /* v may be NULL */

/* Returns how many bytes of memory a value uses, approximately; 0 if `v` is NULL. */
size_t store_value_cost(const struct store_value *v);
/* Returns how many bytes of memory a value with room for `cap` bytes would use. */
size_t store_value_cost_of(size_t cap);

#endif
