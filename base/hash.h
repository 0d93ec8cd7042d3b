/* FNV-1a, a hash function for short texts. It is fast, but not secure: a peer that chooses the
 * bytes can choose the hash. */
#ifndef CR_HASH_H
#define CR_HASH_H

#include <stddef.h>
#include <stdint.h>

#define CR_HASH_BEGIN UINT64_C(14695981039346656037) /* hash of no bytes */

/* Returns the hash of all bytes hashed so far, to which `len` bytes at `data` are added. `hash` is
 * the hash of the bytes before them, or CR_HASH_BEGIN. */
static inline uint64_t cr_hash_add(uint64_t hash, const void *data, size_t len) {
    const unsigned char *bytes = data;
    for (size_t i = 0; i < len; i++) hash = (hash ^ bytes[i]) * UINT64_C(1099511628211);
    return hash;
}

#endif
