#!/usr/bin/env python3
"""A job with several programs: the workers' ranks and roles, one store for all, what follows when a
worker of each role fails (--on-failure), and services, for which the job does not wait."""
import os
import signal

from crun_test import CRUN, clean_env, crun, read_text, run_tests, script, start, wait_for
from hosts import local_rsh

SHOW = ('echo "$1 $RANK/$WORLD_SIZE local $LOCAL_RANK $ROLE_NAME $ROLE_RANK/$ROLE_WORLD_SIZE '
        'restart $TORCHELASTIC_RESTART_COUNT"')
# Leaves a mark file named after its argument and rank. Fails if there was none.
FAIL_ONCE = 'if [ ! -e "$1.$RANK" ]; then : > "$1.$RANK"; exit 3; fi; echo again $RANK'
ENV = clean_env(OMP_NUM_THREADS=1)


def programs(tmp):
    return script(tmp, "show", "#!/bin/sh\n" + SHOW), script(tmp, "once", "#!/bin/sh\n" + FAIL_ONCE)


def job(tmp, *args, **how):
    return crun(*args, cwd=tmp, env=ENV, **how)


def test_ranks_and_roles(tmp):
    show, _ = programs(tmp)
    done = job(tmp, "--nproc-per-node=2", show, "A", ":", "--nproc-per-node=3", "--role=rollout",
               show, "B")
    assert done.returncode == 0, done
    assert sorted(done.stdout.splitlines()) == [
        "A 0/5 local 0 default 0/2 restart 0", "A 1/5 local 1 default 1/2 restart 0",
        "B 2/5 local 2 rollout 0/3 restart 0", "B 3/5 local 3 rollout 1/3 restart 0",
        "B 4/5 local 4 rollout 2/3 restart 0"], done
    done = job(tmp, show, ":", "x")  # as in torchrun, this ":" is an argument
    assert done.stdout.startswith(": 0/1 "), done


def test_several_hosts(tmp):
    show, _ = programs(tmp)
    hosts = ["--rsh", local_rsh(tmp), "--hosts", "127.0.0.2,127.0.0.3"]
    done = job(tmp, *hosts, "--nproc-per-node=1", show, "A", ":", "--nproc-per-node=2", "--role=r",
               show, "B")
    assert done.returncode == 0, done
    assert sorted(line.split("] ")[1] for line in done.stdout.splitlines()) == [
        "A 0/6 local 0 default 0/2 restart 0", "A 3/6 local 0 default 1/2 restart 0",
        "B 1/6 local 1 r 0/4 restart 0", "B 2/6 local 2 r 1/4 restart 0",
        "B 4/6 local 1 r 2/4 restart 0", "B 5/6 local 2 r 3/4 restart 0"], done
    done = job(tmp, *hosts, "-n", "4", show, ":", "--role=r", show)
    assert done.returncode == 2 and "cannot be shared out" in done.stderr, done


def test_prefixes_name_the_role(tmp):
    done = job(tmp, "--tee=3", "true", ":", "--role=r", "--no-python", "echo", "hello")
    assert done.stdout == "[r1]:hello\n", done


def test_one_store_for_all(tmp):
    put = script(tmp, "put", '#!/bin/sh\nexec "$CRUN_STORE" set "$MASTER_ADDR:$MASTER_PORT" key v')
    get = script(tmp, "get", '#!/bin/sh\nuntil "$CRUN_STORE" get '
                 '"$MASTER_ADDR:$MASTER_PORT" key 2> /dev/null; do sleep 0.05; done')
    done = crun(put, ":", "--role=r", get, cwd=tmp,
                env=dict(ENV, CRUN_STORE=os.path.join(os.path.dirname(CRUN), "crun-store")))
    assert done.returncode == 0 and "v" in done.stdout, done


def test_only_the_failed_worker_is_started_again(tmp):
    show, once = programs(tmp)
    done = job(tmp, "--log-dir", tmp / "logs", "--tee=3", "--event-log", tmp / "events", show, "A",
               ":", "--nproc-per-node=2", "--role=r", "--on-failure=alone:1", once, "m")
    assert done.returncode == 0, done
    assert sorted(done.stdout.splitlines()) == [
        "[default0]:A 0/3 local 0 default 0/1 restart 0", "[r1]:again 1", "[r2]:again 2"], done
    assert done.stderr.count("only this worker, of the role 'r', is started again (1 of 1)") == 2
    assert read_text(tmp / "events").count('"worker_restarted"') == 2
    logs = list((tmp / "logs").glob("*/attempt_0/1/stdout.log"))
    assert [read_text(path) for path in logs] == ["again 1\n"], logs


def test_what_a_failed_worker_has_left_is_ended(tmp):
    once = script(tmp, "leaver", '#!/bin/sh\nif [ ! -e pid ]; then sleep 1000 & echo $! > pid; '
                  'exit 3; fi\nwhile kill -0 $(cat pid) 2> /dev/null; do :; done')
    done = job(tmp, "--on-failure=alone", once)
    assert done.returncode == 0, done


def test_restarts_alone_are_used_up(tmp):
    _, once = programs(tmp)
    done = job(tmp, "--max-restarts=1", "true", ":", "--role=r", "--on-failure=alone:2",
               script(tmp, "bad", "#!/bin/sh\necho run >> runs; exit 4"))
    assert done.returncode == 1, done
    # in each of the two rounds the worker is started once, and again twice
    assert read_text(tmp / "runs").count("run") == 6, done
    assert "restarts: 1 of 1 used" in done.stderr, done


def test_a_failure_can_end_the_job(tmp):
    _, once = programs(tmp)
    done = job(tmp, "--max-restarts=3", "--no-python", "sleep", "1000", ":", "--role=r",
               "--on-failure=end", once, "m")
    assert done.returncode == 1 and "exit code 3" in done.stderr, done
    assert not (tmp / "m.0").exists() and "restarts: 0 of 3 used" in done.stderr, done


def test_a_failure_of_another_role_restarts_all(tmp):
    show, once = programs(tmp)
    done = job(tmp, "--max-restarts=1", once, "m", ":", "--role=r", "--on-failure=end",
               script(tmp, "wait", '#!/bin/sh\nwhile [ "$TORCHELASTIC_RESTART_COUNT" = 0 ]; do '
                      'sleep 0.1; done; echo "restarted"'))
    assert done.returncode == 0 and "restarted" in done.stdout, done


def test_a_service_ends_with_the_others(tmp):
    done = job(tmp, script(tmp, "short", "#!/bin/sh\nwhile [ ! -e up ]; do sleep 0.05; done"), ":",
               "--role=server", "--service",
               script(tmp, "server", "#!/bin/sh\ntrap 'echo asked to end; exit 0' TERM\n: > up\n"
                      "while :; do sleep 0.05; done"))
    assert done.returncode == 0 and done.stdout == "asked to end\n", done


def test_a_service_that_fails_restarts_all(tmp):
    done = job(tmp, "--no-python", "sleep", "1000", ":", "--service", "--no-python", "false")
    assert done.returncode == 1 and "rank 1" in done.stderr, done


def test_a_signal_reaches_all_programs(tmp):
    stay = script(tmp, "stay", '#!/bin/sh\ntrap "echo $ROLE_NAME; exit 0" TERM\n: > $ROLE_NAME\n'
                  'while :; do sleep 0.05; done')
    job_ = start([CRUN, "--role=a", stay, ":", "--role=b", "--service", stay], cwd=tmp, env=ENV)
    wait_for(lambda: (tmp / "a").exists() and (tmp / "b").exists(), "both programs")
    job_.send_signal(signal.SIGTERM)
    out, err = job_.communicate()
    assert sorted(out.split()) == ["a", "b"], (out, err)


if __name__ == "__main__":
    run_tests(globals())
