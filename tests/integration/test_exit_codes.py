#!/usr/bin/env python3
# timeout: 120
"""Tests the exit status: 1 for every failure by default, as torchrun; and --exit-codes=distinct."""
import pathlib
import signal
import socket
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
from crun_test import BUILD, CRUN, SCALE, clean_env, crun, run_tests, script, start, wait_for
from free_port import free_port

STUCK = BUILD / "tests" / "workers" / "stuck"
DISTINCT = "--exit-codes=distinct"


def check(status, *arguments, cwd, **env):
    """Runs the job with both kinds of exit codes."""
    done = crun(*arguments, cwd=cwd, env=clean_env(**env))
    assert done.returncode == (status and 1), done
    done = crun(DISTINCT, *arguments, cwd=cwd, env=clean_env(**env))
    assert done.returncode == status, done
    return done


def test_workers(tmp):
    check(0, "true", cwd=tmp)
    check(1, "false", cwd=tmp)
    check(81, "--max-restarts=1", "false", cwd=tmp)
    check(93, "--max-restarts=1", "sh", "-c", "exit 93", cwd=tmp)
    check(93, "sh", "-c", "no-such-program", cwd=tmp)
    check(1, "sh", "-c", "kill -SEGV $$", cwd=tmp)


def test_the_first_failure_counts(tmp):
    """Rank 1 fails later, because of rank 0."""
    path = script(tmp, "w", "#!/bin/sh\n[ $RANK = 0 ] && exit 93\n"
                            "trap 'exit 5' TERM; while :; do sleep 0.05; done\n")
    check(93, "--nproc-per-node=2", path, cwd=tmp)


def test_a_hang(tmp):
    check(85, "--hang-timeout=1", STUCK, "0", "load_batch", cwd=tmp)


def test_without_a_log_folder(tmp):
    check(81, "--log-dir=/dev/null", "--max-restarts=1", "false", cwd=tmp)
    check(93, "--log-dir=/dev/null", "sh", "-c", "exit 93", cwd=tmp)


def test_the_machine_refuses(tmp):
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        s.listen()
        check(86, "--nnodes=1", f"--master-port={s.getsockname()[1]}", "true", cwd=tmp)


def test_two_nodes_with_the_same_rank(tmp):
    """The second one learns that its node rank may be wrong, not only that the port is taken."""
    port = free_port()
    nodes = [start([CRUN, "--nnodes=2", "--node-rank=0", f"--master-port={port}", "true"], cwd=tmp,
                   env=clean_env(LOGLEVEL="info")) for _ in range(2)]
    wait_for(lambda: any(n.poll() is not None for n in nodes), "one of the nodes to give up")
    (loser,) = [n for n in nodes if n.poll() is not None]
    (other,) = [n for n in nodes if n is not loser]
    err = loser.communicate(timeout=60 * SCALE)[1]
    other.send_signal(signal.SIGTERM)
    other.communicate(timeout=60 * SCALE)
    assert loser.returncode == 1 and "if node rank 0 of this job runs here already, give this " \
        "node another --node-rank; else give --master-port another port\n" in err, err


def test_a_rendezvous_that_is_lost(tmp):
    """Only one of two nodes comes."""
    port = free_port()
    check(82, "--nnodes=2", "--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{port}",
          "--rdzv-conf=join_timeout=1", "true", cwd=tmp)


def check_signal(tmp, signum, status, *arguments):
    job = start([CRUN, *arguments, "sh", "-c", "echo up; exec sleep 60"], cwd=tmp, env=clean_env())
    assert job.stdout.readline() == "up\n"
    job.send_signal(signum)
    job.communicate(timeout=60 * SCALE)
    assert job.returncode == status, (job.returncode, arguments)


def test_signals(tmp):
    check_signal(tmp, signal.SIGTERM, 1)
    check_signal(tmp, signal.SIGTERM, 143, DISTINCT)
    check_signal(tmp, signal.SIGINT, 130, DISTINCT)
    check_signal(tmp, signal.SIGUSR1, 1, "--preemption-notice=1")
    check_signal(tmp, signal.SIGUSR1, 83, "--preemption-notice=1", DISTINCT)


def test_wrong_words_are_refused(tmp):
    done = crun("--exit-codes=both", "true", cwd=tmp)
    assert done.returncode == 2 and "'both'" in done.stderr, done
    assert crun("true", cwd=tmp, env=clean_env(PET_EXIT_CODES="distinct")).returncode == 0


if __name__ == "__main__":
    run_tests(globals())
