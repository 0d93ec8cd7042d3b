#!/usr/bin/env python3
# timeout: 900
"""jax.distributed.initialize() without arguments under `crun --jax`, and TensorFlow's
MultiWorkerMirroredStrategy under `crun --tf-config`, with the real packages from PyPI.
`make interop-jax` makes the virtual environment that this test needs."""
import os
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
from crun_test import SCALE, clean_env, crun, run, run_tests, script, skip  # noqa: E402
from hosts import local_rsh  # noqa: E402

PYTHON = os.environ.get("CRUN_TEST_JAX_PYTHON")
if not PYTHON:
    skip("CRUN_TEST_JAX_PYTHON is not set; make interop-jax sets it")

JAX = """
import sys, jax
jax.distributed.initialize()
import jax.numpy as jnp
from jax.experimental import multihost_utils
all = multihost_utils.process_allgather(jnp.array([jax.process_index() + 1]))
# One write: print() writes the text and the end of the line separately.
sys.stdout.write(f"jax {jax.process_index()} of {jax.process_count()} sum {int(all.sum())}\\n")
"""

TENSORFLOW = """
import json, os, sys
import tensorflow as tf
strategy = tf.distribute.MultiWorkerMirroredStrategy()
rank = json.loads(os.environ["TF_CONFIG"])["task"]["index"]
@tf.function
def total():
    def step():
        context = tf.distribute.get_replica_context()
        return context.all_reduce(tf.distribute.ReduceOp.SUM, tf.constant(float(rank + 1)))
    return strategy.run(step)
sys.stdout.write(f"tf {rank} of {strategy.num_replicas_in_sync} sum {int(total().numpy())}\\n")
"""


def environment(**more):
    return clean_env(PYTHON_EXEC=PYTHON, OMP_NUM_THREADS=1, JAX_PLATFORMS="cpu",
                     CUDA_VISIBLE_DEVICES="", TF_CPP_MIN_LOG_LEVEL=3, **more)


def lines(done, word):
    return sorted(at[at.index(word + " "):] for at in done.stdout.splitlines() if word + " " in at)


def need(package):
    """Returns whether the package can be imported; says so if it cannot."""
    found = run([PYTHON, "-c", f"import {package}"], timeout=200 * SCALE, env=environment())
    if found.returncode != 0:
        print(f"left out: {package} is not installed")
    return found.returncode == 0


def start(tmp, name, text, *args, **more):
    done = crun(*args, script(tmp, name, text), cwd=tmp, env=environment(**more),
                timeout=200 * SCALE)
    assert done.returncode == 0, done
    return done


def test_jax_on_one_node(tmp):
    if need("jax"):
        done = start(tmp, "j.py", JAX, "--jax", "--nproc-per-node=3")
        assert lines(done, "jax") == [f"jax {i} of 3 sum 6" for i in range(3)], done


def test_jax_on_two_hosts_inside_a_slurm_job(tmp):
    """The variables of a Slurm task, which are the same for both workers of a node, do no harm."""
    if not need("jax"):
        return
    slurm = {"SLURM_JOB_ID": 7, "SLURM_STEP_NODELIST": "n1,n2", "SLURM_NTASKS": 2,
             "SLURM_PROCID": 0, "SLURM_LOCALID": 0}
    done = start(tmp, "j.py", JAX, "--jax", "--scheduler=none", "--rsh", local_rsh(tmp), "--hosts",
                 "127.0.0.2:1,127.0.0.3:1", "-x", "JAX_PLATFORMS", "-x", "PYTHON_EXEC", *(
                     word for name, value in slurm.items() for word in ("-x", f"{name}={value}")))
    assert lines(done, "jax") == [f"jax {i} of 2 sum 3" for i in range(2)], done


def test_tensorflow(tmp):
    if need("tensorflow"):
        done = start(tmp, "t.py", TENSORFLOW, "--tf-config", "--nproc-per-node=2")
        assert lines(done, "tf") == [f"tf {i} of 2 sum 3" for i in range(2)], done


if __name__ == "__main__":
    run_tests(globals())
