/* Parses, formats and combines sets of CPUs; base/process/cpu_mask.h declares the functions. */
#include "base/process/cpu_mask.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

uint32_t cr_cpu_count(const struct cr_cpu_mask *m) {
    uint32_t n = 0;
    for (size_t i = 0; i < sizeof(m->bits) / sizeof(m->bits[0]); i++)
        n += (uint32_t) __builtin_popcountl(m->bits[i]);
    return n;
}

uint32_t cr_cpu_next(const struct cr_cpu_mask *m, uint32_t from) {
    while (from < CR_CPUS_MAX && !cr_cpu_has(m, from)) from++;
    return from < CR_CPUS_MAX ? from : CR_CPUS_MAX;
}

void cr_cpu_intersect(struct cr_cpu_mask *m, const struct cr_cpu_mask *other) {
    for (size_t i = 0; i < sizeof(m->bits) / sizeof(m->bits[0]); i++) m->bits[i] &= other->bits[i];
}

/* Parses the CPU number at *at into *out and moves *at to the text after it. Returns 0; or -EINVAL
 * if there is no digit (signs and blanks are not accepted) or the number is CR_CPUS_MAX or more. */
static int parse_number(const char **at, uint32_t *out) {
    uint32_t n = 0;
    const char *start = *at;
    for (; **at >= '0' && **at <= '9'; (*at)++) {
        n = n * 10 + (uint32_t) (**at - '0');
        if (n >= CR_CPUS_MAX) return -EINVAL;
    }
    *out = n;
    return *at > start ? 0 : -EINVAL;
}

static int parse_range(const char **at, struct cr_cpu_mask *m) {
    uint32_t first, last;
    if (parse_number(at, &first) < 0) return -EINVAL;
    last = first;
    if (**at == '-') {
        (*at)++;
        if (parse_number(at, &last) < 0 || last < first) return -EINVAL;
    }
    for (uint32_t cpu = first; cpu <= last; cpu++) cr_cpu_add(m, cpu);
    return 0;
}

int cr_cpu_parse(const char *list, struct cr_cpu_mask *m) {
    const char *end = list + strcspn(list, " \n"), *at = list;
    *m = (struct cr_cpu_mask){0};
    if (end[strspn(end, " \n")] != '\0') return -EINVAL;
    while (at < end) {
        if (parse_range(&at, m) < 0) return -EINVAL;
        if (at == end) break;
        if (*at++ != ',' || at == end) return -EINVAL;
    }
    return 0;
}

void cr_cpu_format(const struct cr_cpu_mask *m, char *out, size_t size) {
    static const char more[] = "…";
    size_t len = 0;
    out[0] = '\0';
    for (uint32_t cpu = cr_cpu_next(m, 0); cpu < CR_CPUS_MAX; cpu = cr_cpu_next(m, cpu)) {
        uint32_t first = cpu;
        char range[32];
        while (cr_cpu_has(m, cpu)) cpu++;
        int n = snprintf(range, sizeof(range), "%s%u", len > 0 ? "," : "", first);
        if (cpu - first > 1)
            n += snprintf(range + n, sizeof(range) - (size_t) n, "-%u", cpu - 1);
        if (len + (size_t) n + sizeof(more) > size) {
            if (len + sizeof(more) <= size) memcpy(out + len, more, sizeof(more));
            return;
        }
        memcpy(out + len, range, (size_t) n + 1);
        len += (size_t) n;
    }
}

int cr_cpu_allowed(struct cr_cpu_mask *m) {
    cpu_set_t *set = (cpu_set_t *) (void *) m;
    *m = (struct cr_cpu_mask){0};
    return sched_getaffinity(0, sizeof(*m), set) == 0 ? 0 : -errno;
}
