/* A hash table of seats by a number, such as the instance of a launcher. Pure. */
#ifndef RENDEZVOUS_SEAT_TABLE_INTERNAL_H
#define RENDEZVOUS_SEAT_TABLE_INTERNAL_H

#include <stdint.h>

struct coordinator_seat;

struct seat_table_entry {
    uint64_t key;
    struct coordinator_seat *seat; /* NULL = this entry is free */
};

struct seat_table {
    struct seat_table_entry *entries;
    /* cap: number of all entries; 0, or a power of two that is at least twice `count`. count:
     * number of used entries */
    uint32_t cap, count;
};

/* Adds a seat. Several seats may have the same key. Returns 0 or -ENOMEM. */
int seat_table_add(struct seat_table *t, uint64_t key, struct coordinator_seat *seat);
/* Removes a seat that was added with this key. Does nothing if the table does not have the seat. */
void seat_table_remove(struct seat_table *t, uint64_t key, const struct coordinator_seat *seat);
/* Returns a seat that was added with this key, or NULL if there is none. */
struct coordinator_seat *seat_table_find(const struct seat_table *t, uint64_t key);
void seat_table_done(struct seat_table *t);

#endif
