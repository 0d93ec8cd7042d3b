/* libcrunrt: the worker runtime of crun. Placeholder, replaced by the worker_runtime work. */
