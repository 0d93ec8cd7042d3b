#!/usr/bin/env python3
# timeout: 300
"""Tests changes with notice. Some tests run examples/elastic under crun: its workers stop after the
same step and go on in their processes. The others speak the rendezvous protocol themselves
(tests/lib/rdzv_raw.py) to test the coordinator alone."""
import os
import pathlib
import re
import signal
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
from crun_test import BUILD, CRUN, PACE, SCALE, clean_env  # noqa: E402
from crun_test import run_tests, skip, start, wait_for  # noqa: E402
from rdzv_raw import Member  # noqa: E402

AGENT = str(BUILD / "bin" / "crun-agent")
ELASTIC = str(BUILD / "examples" / "elastic")
ENV = clean_env(OMP_NUM_THREADS=1)
STEPS = round(400 * PACE)  # at 10 ms each, a job outlasts the start of a second node
JOIN, LEAVE, PREEMPTION, MAINTENANCE = 1, 2, 3, 4


class Output:
    """A process whose stdout and stderr go to files that can be read while it runs."""

    def __init__(self, tmp, name, argv):
        self.out, self.err = tmp / f"{name}.out", tmp / f"{name}.err"
        self.process = start(argv, env=ENV, stdout=self.out.open("w"), stderr=self.err.open("w"))

    def text(self):
        return self.out.read_text() + self.err.read_text()

    def wait(self):
        return self.process.wait(timeout=120 * SCALE)


def with_agent(test):
    """Decorates a test: starts a crun-agent, passes its address, and kills it after the test."""
    def run(tmp):
        with subprocess.Popen([AGENT, "serve", "--listen=127.0.0.1:0"], stdout=subprocess.PIPE,
                              text=True,
                              env=ENV) as agent:
            try:
                test(tmp, agent.stdout.readline().strip())
            finally:
                agent.kill()
    return run


def node(tmp, name, address, *args, nodes="1:2", conf="", workers=2):
    return Output(tmp, name,
                  [CRUN, f"--nnodes={nodes}", f"--nproc-per-node={workers}", "--rdzv-backend=c10d",
                              f"--rdzv-endpoint={address}", "--rdzv-id=job", "--max-restarts=3",
                              f"--rdzv-conf=is_host=0,last_call_timeout=0.5,close_timeout=5{conf}",
                              ELASTIC, *map(str, args)])


def ends(*outputs):
    """Returns what each worker printed at its end: (rank, world size, pid, rounds, steps, sum)."""
    text = "".join(o.out.read_text() for o in outputs)
    return [tuple(float(x) if "." in x or "e" in x else int(x) for x in m) for m in re.findall(
        r"^rank (\d+) of (\d+): process (\d+), (\d+) rounds, (\d+) steps, sum (\S+)$", text, re.M)]


def stops(*outputs):
    return [int(s) for o in outputs
            for s in re.findall(r"stops after step (\d+)", o.out.read_text())]


def wait_for_steps(output, workers):
    """Waits until each worker has made a step, because from its first step on a worker takes part
    in changes."""
    wait_for(lambda: output.out.read_text().count(" begins at step ") == workers, "the first steps")


def test_preempted_on_one_node_all_stop_after_the_same_step(tmp):
    o = Output(tmp, "one", [CRUN, "--nproc-per-node=3", ELASTIC, "1000000", "--pace-ms", "5"])
    wait_for_steps(o, 3)
    o.process.send_signal(signal.SIGUSR1)
    assert o.wait() == 1, o.text()
    assert "this node has left the job: preemption: SIGUSR1" in o.text(), o.text()
    seen = stops(o)
    assert len(seen) == 3 and len(set(seen)) == 1, o.text()


@with_agent
def test_a_node_is_let_in(tmp, address):
    a = node(tmp, "a", address, STEPS, "--pace-ms", 10)
    wait_for_steps(a, 2)
    b = node(tmp, "b", address, STEPS, "--pace-ms", 10)
    assert a.wait() == 0 and b.wait() == 0, a.text() + b.text()
    seen = stops(a, b)
    assert len(seen) == 2 and len(set(seen)) == 1, a.text()
    all_ = ends(a, b)
    assert sorted(e[0] for e in all_) == [0, 1, 2, 3] and {e[1] for e in all_} == {4}, all_
    assert sorted(e[3] for e in all_) == [1, 1, 2, 2], all_   # two have gone on, two are new
    assert {e[4] for e in all_} == {STEPS} and len({e[5] for e in all_}) == 1, all_
    assert "restart" not in a.text(), a.text()


@with_agent
def test_a_node_leaves_with_notice(tmp, address):
    a, b = (node(tmp, n, address, STEPS, "--pace-ms", 10) for n in "ab")
    wait_for_steps(a, 2)
    wait_for_steps(b, 2)
    b.process.send_signal(signal.SIGUSR1)
    assert b.wait() == 1 and a.wait() == 0, a.text() + b.text()
    seen = stops(a, b)
    assert len(seen) == 4 and len(set(seen)) == 1, a.text() + b.text()
    assert {(e[1], e[3], e[4]) for e in ends(a)} == {(2, 2, STEPS)}, a.text()


@with_agent
def test_an_operator_sends_a_node_away(tmp, address):
    a = node(tmp, "a", address, 1000000, "--pace-ms", 10, nodes="1:1")
    wait_for_steps(a, 2)
    told = subprocess.run([AGENT, "dump", address, "--job", "job"], capture_output=True, text=True)
    assert told.returncode == 0 and told.stdout.startswith("1 node was told\n"), told
    assert told.stdout.count("\n") == 2 and " rank" in told.stdout, told
    wait_for(lambda: a.text().count("has written its flight record to ") == 2, "the flight records")
    told = subprocess.run([AGENT, "notify", address, "--job", "job", "--node", os.uname().nodename,
                           "--in", "20", "--why", "a fan is broken"], capture_output=True,
                           text=True)
    assert told.returncode == 0 and told.stdout == "1 node was told\n", told
    assert a.wait() == 1 and "maintenance: a fan is broken" in a.text(), a.text()
    assert len(set(stops(a))) == 1 and len(stops(a)) == 2, a.text()


@with_agent
def test_operators_are_told_what_is_wrong(tmp, address):
    for args, code, text in (
            (["notify", address, "--job", "x", "--node", "n"], 1, "there is no job 'x'"),
            (["dump", address, "--job", "x"], 1, "there is no job 'x'"),
            (["notify", address, "--node", "n"], 2, "--job is missing"),
            (["notify", address, "--job", "x"], 2, "--node is missing"),
            (["notify", address, "--job", "x", "--node", "n", "--in", "soon"], 2, "--in: 'soon'"),
            (["notify", address, "--job", "x", "--node", "n", "--kind", "fun"], 2, "--kind"),
            (["dump", address, "--job", "x", "--in", "3"], 2, "unknown option '--in'"),
            (["dump", "--job", "x"], 2, "no HOST:PORT given")):
        done = subprocess.run([AGENT, *args], capture_output=True, text=True)
        assert done.returncode == code and text in done.stderr, (args, done)


def test_programs_that_count_no_steps_are_stopped_at_once(tmp):
    launch = start([CRUN, "--preemption-notice=10000", "sh", "-c",
                    f"touch {tmp}/up; exec sleep 100000"], env=ENV)
    wait_for(lambda: (tmp / "up").exists(), "the worker")
    launch.send_signal(signal.SIGUSR1)
    _, err = launch.communicate(timeout=60 * SCALE)
    assert launch.returncode == 1 and "this node has left the job" in err, err


def test_the_signal_may_have_another_meaning(tmp):
    text = f"trap 'exit 7' USR1; touch {tmp}/up; while :; do sleep 0.05; done"
    launch = start([CRUN, "--signals-to-handle=SIGUSR1", "sh", "-c", text], env=ENV)
    wait_for(lambda: (tmp / "up").exists(), "the worker")
    launch.send_signal(signal.SIGUSR1)
    _, err = launch.communicate(timeout=60 * SCALE)
    assert launch.returncode == 1 and "got signal: 10" in err, err


# ---- the coordinator's half ----

def two_in_a_round(address, **more):
    how = dict(min_nodes=2, max_nodes=3, last_call_timeout_ms=0, change_notice_ms=60000,
               join_timeout_ms=100000, **more)
    members = [Member(address, host=f"n{i}", **how) for i in range(2)]
    for m in members:
        m.send_join()
    for m in members:
        m.expect("WELCOME")
        m.expect("ACCEPTED")
    for m in members:
        m.expect("ROUND")
    return members, how


@with_agent
def test_one_step_for_all(tmp, address):
    (a, b), how = two_in_a_round(address)
    late = Member(address, host="late", **how)
    late.send_join()
    first, second = a.expect("CHANGE"), b.expect("CHANGE")
    assert first["kind"] == JOIN and 0 < first["left_ms"] <= 60000, first
    assert first["id"] == second["id"], first
    a.send("CHANGE_ANSWER", id=first["id"], step=5, needs_ms=0)
    b.send("CHANGE_ANSWER", id=first["id"] + 1, step=900, needs_ms=0)   # an unknown change: ignored
    b.send("CHANGE_ANSWER", id=first["id"], step=7, needs_ms=70000)
    at = [m.expect("CHANGE_AT") for m in (a, b)]
    assert [x["step"] for x in at] == [8, 8] and at[0]["left_ms"] > 60000, at
    a.send("CHANGE_READY", id=first["id"])
    a.send("CHANGE_READY", id=first["id"])
    b.send("CHANGE_READY", id=first["id"])
    assert "joined" in a.expect("STOP")["why"] and b.expect("STOP")


@with_agent
def test_nobody_counts_steps(tmp, address):
    (a, b), how = two_in_a_round(address)
    a.send("NOTICE", kind=PREEMPTION, left_ms=50000, why="spot")
    change = a.expect("CHANGE")
    assert change["kind"] == PREEMPTION and "spot" in change["why"] and b.expect("CHANGE") == change
    a.send("CHANGE_ANSWER", id=change["id"], step=-1, needs_ms=0)
    b.send("CHANGE_ANSWER", id=change["id"], step=-1, needs_ms=0)
    assert "'n0'" in a.expect("STOP")["why"] and b.expect("STOP")


@with_agent
def test_who_does_not_answer_or_get_ready_holds_nobody_up_for_ever(tmp, address):
    (a, b), how = two_in_a_round(address)
    a.send("NOTICE", kind=LEAVE, left_ms=300, why="soon")
    change = a.expect("CHANGE")
    b.expect("CHANGE")
    a.send("CHANGE_ANSWER", id=change["id"], step=5, needs_ms=900000)   # b does not answer
    assert a.expect("STOP") and b.expect("STOP")
    for m in (a, b):
        m.send_join()
    a.expect("ROUND"), b.expect("ROUND")
    b.send("NOTICE", kind=MAINTENANCE, left_ms=round(3000 * PACE), why="again")
    again = a.expect("CHANGE")
    assert again["id"] > change["id"] and b.expect("CHANGE") == again
    for m in (a, b):
        m.send("CHANGE_ANSWER", id=again["id"], step=3, needs_ms=0)
    assert a.expect("CHANGE_AT")["step"] == 4 and b.expect("CHANGE_AT")
    a.send("CHANGE_READY", id=again["id"])                              # b sends no READY
    assert a.expect("STOP") and b.expect("STOP")


@with_agent
def test_a_failure_comes_first(tmp, address):
    (a, b), how = two_in_a_round(address, max_restarts=1)
    a.send("NOTICE", kind=LEAVE, left_ms=50000, why="soon")
    change = a.expect("CHANGE")
    b.expect("CHANGE")
    b.send("FAILED", round=0, what="rank 1 broke")
    assert "rank 1 broke" in a.expect("STOP")["why"]                    # a gets b's failure
    a.send("CHANGE_READY", id=change["id"])                             # after STOP: ignored
    a.send_join()
    b.send_join()
    assert a.expect("ROUND")["restart_count"] == 1


if __name__ == "__main__":
    if not (BUILD / "lib" / "crunrt" / "gloo.so").exists():
        skip("the Gloo backend was not built (libgloo-dev)")
    run_tests(globals())
