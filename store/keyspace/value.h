/* Values: byte strings with a reference count, so that a big value is not copied.
 *
 * A value is shared by the key that holds it, by replies that are not sent completely yet, and,
 * while its request arrives, by the connection that receives it. Values of STORE_LEND_MIN bytes or
 * more begin at a page boundary and share no page with other data, so that the server can lend
 * them: the kernel sends from these pages without copying them (store/server/lend.c). A lent page
 * must never change again, because the kernel may still send from it after the value is freed. */
#ifndef STORE_KEYSPACE_VALUE_H
#define STORE_KEYSPACE_VALUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct store_value {
    /* NULL, or a sum from which the value's cost is subtracted when the value is freed */
    size_t *account;
    uint32_t refs;
    uint32_t len; /* bytes in use */
    uint32_t cap; /* bytes that are allocated */
    uint32_t lent; /* 1 once its pages were lent to the kernel: they must not change any more */
    uint8_t data[];
};

/* Sizes of values, in bytes, that are lent. Below STORE_LEND_MIN, the two system calls cost more
 * than the copy. Above STORE_LEND_MAX, copying is faster if a core is free: values of 16 MiB are
 * read at 3.9 GB/s if copied and at 2.4 GB/s if lent, perhaps because one core fetches from memory
 * while another copies from the cache. At 1 MiB, lending reads 4.6 GB/s, and torch's server 1.6
 * (docs/benchmarks.md, "The store"). */
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
