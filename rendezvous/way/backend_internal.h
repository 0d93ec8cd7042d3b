/* The backends: each answers where the coordinator is. What follows from the answer, where
 * stores listen and whether ranks are fixed, is in the plan as well. backend.c fills in what all
 * plans share. */
#ifndef RENDEZVOUS_BACKEND_INTERNAL_H
#define RENDEZVOUS_BACKEND_INTERNAL_H

#include "rendezvous/way/way.h"

int backend_c10d_plan(const struct rendezvous_options *o, struct backend_plan *out,
                      struct cr_error *err);
int backend_static_plan(const struct rendezvous_options *o, struct backend_plan *out,
                        struct cr_error *err);
int backend_etcd_plan(const struct rendezvous_options *o, struct backend_plan *out,
                      struct cr_error *err);

#endif
