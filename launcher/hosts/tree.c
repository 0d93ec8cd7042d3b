/* Divides the hosts of a job into the ranges that each process starts: see tree_internal.h. */
#include "launcher/hosts/tree_internal.h"

uint32_t hosts_range_parts(struct hosts_range range, uint32_t fan_out) {
    return range.count < fan_out ? range.count : fan_out;
}

struct hosts_range hosts_range_part(struct hosts_range range, uint32_t fan_out, uint32_t i) {
    uint32_t parts = hosts_range_parts(range, fan_out);
    uint32_t size = range.count / parts, rest = range.count % parts;
    /* the first `rest` parts have one host more than the others */
    uint32_t before = i * size + (i < rest ? i : rest);
    return (struct hosts_range){.first = range.first + before, .count = size + (i < rest)};
}
