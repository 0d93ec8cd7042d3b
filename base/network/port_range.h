/* A range of TCP ports, such as that of --port-range LO-HI, for firewalls that let only some ports
 * through. This header includes no socket header, so that pure code can include it. */
#ifndef CR_PORT_RANGE_H
#define CR_PORT_RANGE_H

#include "base/error.h"

#include <stdint.h>

/* The ports from `first` to `last`, both included. If both are 0, the kernel chooses the port. */
struct cr_port_range {
    uint16_t first, last;
};

/* Parses "LO-HI" with 1 <= LO <= HI <= 65535, for example "29500-29600". Returns 0; or -EINVAL, and
 * sets err to a text that quotes the range and shows the form. */
int cr_port_range_parse(const char *text, struct cr_port_range *out, struct cr_error *err);

/* Returns how many ports the range has; 0 if the kernel chooses the port. */
static inline uint32_t cr_port_range_count(struct cr_port_range r) {
    return r.first == 0 ? 0 : (uint32_t) (r.last - r.first) + 1;
}

#endif
