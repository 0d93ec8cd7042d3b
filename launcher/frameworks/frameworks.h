/* Starts programs of JAX and TensorFlow, which then need no launcher of their own (--jax,
 * --tf-config).
 *
 * Such a program needs the addresses of ports at which workers listen: JAX the address of rank 0,
 * TensorFlow the addresses of all workers. So each worker's process first executes crun
 * (--framework-worker). This crun finds a free port, exchanges addresses through the job's store,
 * sets the variables of the framework, and executes the program. */
#ifndef LAUNCHER_FRAMEWORKS_H
#define LAUNCHER_FRAMEWORKS_H

#include "base/buffer.h"
#include "base/error.h"

#include <stdint.h>

/* Executes the program argv[1] with the arguments that follow. argv[0] names the frameworks: "jax",
 * "tf" or "jax,tf"; "@LO-HI" may follow, the ports from which this function chooses. Does not
 * return on success. On failure, returns a negative errno and sets err. */
int frameworks_run_worker(char *const *argv, struct cr_error *err);

/* Appends the value of TF_CONFIG for worker `index` of a cluster whose workers have these addresses
 * (HOST:PORT). Pure. Returns 0 or -ENOMEM. */
int frameworks_write_tf_config(const char *const *addresses, uint32_t count, uint32_t index,
                               struct cr_buffer *out);

#endif
