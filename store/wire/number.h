/* Reading and writing little-endian numbers at addresses of any alignment. */
#ifndef STORE_WIRE_NUMBER_H
#define STORE_WIRE_NUMBER_H

#include <stdint.h>

static inline uint64_t store_load_u64(const void *p) {
    const uint8_t *b = p;
    return (uint64_t) b[0] | (uint64_t) b[1] << 8 | (uint64_t) b[2] << 16 | (uint64_t) b[3] << 24 |
           (uint64_t) b[4] << 32 | (uint64_t) b[5] << 40 | (uint64_t) b[6] << 48 |
           (uint64_t) b[7] << 56;
}

static inline uint32_t store_load_u32(const void *p) {
    const uint8_t *b = p;
    return (uint32_t) b[0] | (uint32_t) b[1] << 8 | (uint32_t) b[2] << 16 | (uint32_t) b[3] << 24;
}

static inline void store_put_u64(void *p, uint64_t v) {
    for (int i = 0; i < 8; i++) ((uint8_t *) p)[i] = (uint8_t) (v >> (8 * i));
}

static inline void store_put_u32(void *p, uint32_t v) {
    for (int i = 0; i < 4; i++) ((uint8_t *) p)[i] = (uint8_t) (v >> (8 * i));
}

#endif
