#!/usr/bin/env python3
"""The variables of --jax and --tf-config. tests/interop/test_jax_tensorflow.py has the same with
the real packages."""
import json
import os

from crun_test import CRUN, clean_env, crun, run, run_tests
from hosts import local_rsh

JAX = 'echo "$JAX_COORDINATOR_ADDRESS $OMPI_COMM_WORLD_RANK/$OMPI_COMM_WORLD_SIZE ' \
      '$OMPI_COMM_WORLD_LOCAL_RANK ${OMPI_MCA_orte_hnp_uri:+ompi} ${TF_CONFIG-none}"'
ENV = clean_env(OMP_NUM_THREADS=1)


def test_jax(tmp):
    done = crun("--jax", "--standalone", "--nproc-per-node=2", "--no-python", "sh", "-c", JAX,
                env=ENV)
    assert done.returncode == 0 and done.stderr == "", done
    found = sorted(line.split(" ", 1) for line in done.stdout.splitlines())
    assert [rest for _, rest in found] == ["0/2 0 ompi none", "1/2 1 ompi none"], done
    assert len({address for address, _ in found}) == 1, done
    host, port = found[0][0].rsplit(":", 1)
    assert host == "127.0.0.1" and int(port) > 0, done
    done = crun("--jax", "--standalone", "--port-range=14200-14239", "--no-python", "sh", "-c", JAX,
                env=ENV)
    assert 14200 <= int(done.stdout.split(" ", 1)[0].rsplit(":", 1)[1]) <= 14239, done


def test_tf_config_on_two_hosts(tmp):
    done = crun("--tf-config", "--rsh", local_rsh(tmp), "--hosts", "127.0.0.2:2,127.0.0.3:1",
                "--port-range=14200-14239", "--no-python", "sh", "-c", "echo $TF_CONFIG", env=ENV)
    assert done.returncode == 0, done
    found = [json.loads(line.split("] ", 1)[1]) for line in done.stdout.splitlines()]
    assert sorted(c["task"]["index"] for c in found) == [0, 1, 2], done
    assert all(c["task"]["type"] == "worker" for c in found), done
    workers = found[0]["cluster"]["worker"]
    assert len(set(workers)) == 3 and all(c["cluster"]["worker"] == workers for c in found), done
    assert all(14200 <= int(w.rsplit(":", 1)[1]) <= 14239 for w in workers), workers


def test_nothing_is_set_without_the_options(tmp):
    done = crun("--no-python", "sh", "-c", JAX, env=ENV)
    assert done.stdout.split() == ["/", "none"], done


def test_the_helper_is_not_for_users(tmp):
    done = run([CRUN, "--framework-worker", "jax", "true"], env=ENV)
    assert done.returncode == 1 and "not meant to be called by hand" in done.stderr, done


def test_arguments_reach_the_program(tmp):
    path = os.path.join(tmp, "a $b")
    with open(path, "w") as out:
        out.write('#!/bin/sh\necho "$1|$2"\n')
    os.chmod(path, 0o755)
    done = crun("--jax", "--tf-config", path, "--help", "$local_rank x", env=ENV)
    assert done.stdout == "--help|0 x\n", done


if __name__ == "__main__":
    run_tests(globals())
