/* A set of CPUs, with functions that convert it from and to the list form of sysfs ("0-3,8"). The
 * bits have the layout that sched_setaffinity(2) expects. */
#ifndef CR_CPU_MASK_H
#define CR_CPU_MASK_H

#include <stddef.h>
#include <stdint.h>

#define CR_CPUS_MAX 8192u /* highest number of CPUs that Linux supports (CONFIG_NR_CPUS) */
#define CR_CPU_WORD (8 * sizeof(unsigned long))

struct cr_cpu_mask {
    unsigned long bits[CR_CPUS_MAX / CR_CPU_WORD];
};

static inline void cr_cpu_add(struct cr_cpu_mask *m, uint32_t cpu) {
    if (cpu < CR_CPUS_MAX) m->bits[cpu / CR_CPU_WORD] |= 1UL << cpu % CR_CPU_WORD;
}

static inline int cr_cpu_has(const struct cr_cpu_mask *m, uint32_t cpu) {
    return cpu < CR_CPUS_MAX && (m->bits[cpu / CR_CPU_WORD] >> cpu % CR_CPU_WORD & 1);
}

uint32_t cr_cpu_count(const struct cr_cpu_mask *m);

/* Returns the lowest CPU in the set that is >= `from`, or CR_CPUS_MAX if there is none. */
uint32_t cr_cpu_next(const struct cr_cpu_mask *m, uint32_t from);

/* Removes from *m the CPUs that are not in `other`. */
void cr_cpu_intersect(struct cr_cpu_mask *m, const struct cr_cpu_mask *other);

/* Parses a list such as "0-3,8", which blanks and a newline may follow, into *m; "" is the empty
 * set. Returns 0; or -EINVAL if the text has another form or a number is CR_CPUS_MAX or more. On
 * error *m is undefined. */
int cr_cpu_parse(const char *list, struct cr_cpu_mask *m);

/* Writes the set as a list such as "0-3,8" and a NUL to out[0..size). If the list does not fit, it
 * is cut after a range and ends in "…". */
void cr_cpu_format(const struct cr_cpu_mask *m, char *out, size_t size);

/* Sets *m to the CPUs that the calling thread may run on. Returns 0 or a negative errno. */
int cr_cpu_allowed(struct cr_cpu_mask *m);

#endif
