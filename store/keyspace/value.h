/* Values: byte strings with a reference count, so that a big value is never copied.
 *
 * A value is shared by the key that holds it, by replies that were not sent completely yet, and,
 * while a request arrives, by the connection that receives it. Values of STORE_LEND_MIN bytes or
 * more begin at a page and share no page with anything else, so that the server can lend them: the
 * kernel sends from these pages without copying them (store/server/lend.c). A lent page must never
 * change again, because the kernel may still send from it after the value is freed. */
#ifndef STORE_KEYSPACE_VALUE_H
#define STORE_KEYSPACE_VALUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct store_value {
    size_t *account; /* this sum is reduced by the value's cost when it is freed; NULL: none is */
    uint32_t refs;
    uint32_t len; /* bytes in use */
    uint32_t cap; /* bytes there is memory for */
    uint32_t lent; /* 1 once the kernel was given its pages: they never change again */
    uint8_t data[];
};

/* Lending pays between these sizes. Below, the two system calls cost more than the copy. Above, a
 * copy is faster when a core is free: 16 MiB values are read at 3.9 GB/s copied and at 2.4 GB/s
 * lent, perhaps because one core fetches from memory while another copies from the cache.
 * At 1 MiB lending reads 4.6 GB/s, torch's server 1.6 (docs/benchmarks.md, "The store"). */
#define STORE_LEND_MIN ((size_t) 128 << 10)
#define STORE_LEND_MAX ((size_t) 4 << 20)

static inline bool store_value_lendable(const struct store_value *v) {
    return v->len >= STORE_LEND_MIN && v->len <= STORE_LEND_MAX;
}

/* Returns a value with room for `cap` bytes, refs 1, len 0; NULL when memory is short. */
struct store_value *store_value_new(size_t cap);
struct store_value *store_value_ref(struct store_value *v);
void store_value_unref(struct store_value *v); /* NULL is fine */

/* The memory that a value uses, approximately; 0 for NULL. */
size_t store_value_cost(const struct store_value *v);
/* The memory that a value with room for `cap` bytes would use. */
size_t store_value_cost_of(size_t cap);

#endif
