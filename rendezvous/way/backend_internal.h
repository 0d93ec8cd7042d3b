/* The rendezvous backends c10d, static and etcd. Each has one function that fills a backend_plan:
 * where the coordinator is, where stores listen, and whether ranks are fixed. backend.c calls the
 * right function, after it has set the fields that all plans have. */
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
