/* Programs of JAX and TensorFlow without their own launchers (--jax, --tf-config).
 *
 * Both need the address of a port that a worker opens itself: JAX that of rank 0, TensorFlow those
 * of all workers. So the worker's process first executes crun (--framework-worker), which finds a
 * free port, exchanges addresses through the job's store, sets the variables, and executes the
 * program. */
#ifndef LAUNCHER_FRAMEWORKS_H
#define LAUNCHER_FRAMEWORKS_H

#include "base/buffer.h"
#include "base/error.h"

#include <stdint.h>

/* Executes argv[1], whose arguments follow; it never returns on success. argv[0] names the
 * frameworks: "jax", "tf" or "jax,tf". Returns a negative errno, and sets err. */
int frameworks_run_worker(char *const *argv, struct cr_error *err);

/* Appends the value of TF_CONFIG for worker `index` of a cluster whose workers have these addresses
 * (HOST:PORT). Pure. Returns 0 or -ENOMEM. */
int frameworks_write_tf_config(const char *const *addresses, uint32_t count, uint32_t index,
                               struct cr_buffer *out);

#endif
