#!/usr/bin/env python3
# timeout: 600
"""examples/elastic under crun. Workers are killed: one or two at a time, also at the very
beginning of a round, on one node and on several. Nodes join and leave with notice. The other
workers go on in their processes, and the result is the same as without these events."""

import os
import random
import re
import signal
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from crun_test import BUILD, PACE, alive, clean_env, crun, run_tests, skip, wait_for
from nodes import Nodes

ELASTIC = BUILD / "examples" / "elastic"
STEPS = 1500
if not os.path.exists(f"{BUILD}/lib/crunrt/gloo.so"):
    skip("the gloo backend was not built (libgloo-dev)")

BEGINS = re.compile(r"rank (\d+) of (\d+): round (\d+) of process (\d+) begins at step (\d+)\n")
ENDS = re.compile(r"rank (\d+) of (\d+): process (\d+), (\d+) rounds, (\d+) steps, sum (\S+)\n")


def undisturbed():
    done = crun(
        "--standalone", "--nproc-per-node=2", ELASTIC, STEPS, env=clean_env(OMP_NUM_THREADS=1)
    )
    assert done.returncode == 0, done
    return ENDS.findall(done.stdout + "\n")[0][5]


def disturb(tmp, nodes, ranks, kills, seed):
    """Kills `kills` times, but never the process that has rank 0 at first."""
    seed = int(os.environ.get("SEED", seed))
    choose = random.Random(seed)
    print(f"seed {seed}")
    with Nodes(
        tmp, f"--nnodes={nodes}", f"--nproc-per-node={ranks // nodes}", "--max-restarts=40"
    ) as job:
        begin = {"program": ELASTIC, "args": (STEPS, "--pace-ms", 6), "OMP_NUM_THREADS": "1"}
        launchers = [
            (job.start_host if n == 0 and nodes > 1 else job.start)("abc"[n], **begin)
            for n in range(nodes)
        ]
        seen, spared, killed = [0] * nodes, None, 0

        def begun():
            """Live processes that have begun a round since the last kill, by rank."""
            lines = [m for n, at in zip(launchers, seen) for m in BEGINS.findall(n.text, at)]
            return {int(m[0]): int(m[3]) for m in lines if alive(int(m[3]))}

        def ended():
            return any(n.process.poll() is not None for n in launchers)

        for kill in range(kills):
            # Every second time as soon as one rank has begun: the others are still joining the
            # round.
            few = kill % 2 == 1
            wait_for(
                lambda: len(begun()) == ranks
                or few
                and set(begun().values()) - {spared}
                or ended(),
                f"round {kill}",
            )
            assert not ended(), f"the job ended after {kill} kills"
            pids = begun()
            spared = spared or pids[0]
            seen = [len(launcher.text) for launcher in launchers]
            victims = [pid for pid in pids.values() if pid != spared]
            for pid in choose.sample(victims, min(len(victims), choose.choice((1, 1, 2)))):
                os.kill(pid, signal.SIGKILL)
                killed += 1
        for launcher in launchers:
            assert launcher.wait() == 0
        text = "".join(launcher.text for launcher in launchers)
        ends = ENDS.findall(text)
        assert sorted(int(e[0]) for e in ends) == list(range(ranks)), ends
        assert {e[4] for e in ends} == {str(STEPS)} and {e[1] for e in ends} == {str(ranks)}, ends
        rounds = {int(e[2]): int(e[3]) for e in ends}
        assert rounds.get(spared, 0) >= kills - 1, f"process {spared} did not go on: {rounds}"
        print(f"{killed} killed, {spared} was in {rounds[spared]} rounds")
        assert {e[5] for e in ends} == {undisturbed()}, ends


def test_one_node(tmp):
    disturb(tmp, 1, 4, 6, 1)


def test_the_agent_ends_the_operations_of_the_others(tmp):
    """The agent ends the operations of the survivors: they need not find out by missing signs of
    life or by broken connections that a rank has died. A survivor that is between two operations
    learns of the death from crunrt_step(), so the job is repeated until a survivor was in an
    operation."""
    for _ in range(10):
        done = crun("--standalone", "--nproc-per-node=4", "--max-restarts=1",
                    BUILD / "examples" / "elastic", "200", "--kill", "1@50",
                    env=clean_env(OMP_NUM_THREADS=1))
        assert done.returncode == 0, done
        assert "no sign of rank" not in done.stderr, done
        if "; the agent has ended the round" in done.stderr:
            break
    assert "; the agent has ended the round" in done.stderr, done


def test_while_a_group_is_made(tmp):
    """No rank has a connection that could break: the agent reports the failure, and the waiting
    ranks rejoin."""
    done = crun("--standalone", "--nproc-per-node=3", "--max-restarts=1",
                BUILD / "tests" / "workers" / "crunrt_worker", "lose-opening",
                env=clean_env(OMP_NUM_THREADS=1))
    assert done.returncode == 0, done
    assert done.stdout.count("the agent reports that the round is over") == 2, done
    assert "did not call crunrt_rejoin() in time" not in done.stderr, done
    assert sorted(re.findall(r"ends as rank (\d)", done.stdout)) == ["0", "1", "2"], done
    assert done.stdout.count("rejoined rank") == 2, done


def test_three_nodes(tmp):
    disturb(tmp, 3, 6, 6, 2)


def test_nodes_come_and_go(tmp):
    """2, 4, 6 and again 4 ranks, and no worker is killed: each time all ranks stop after the
    same step, and the processes go on."""
    stops = re.compile(r"rank (\d+): stops after step (\d+): (.*)\n")
    with Nodes(tmp, "--nnodes=1:3", "--nproc-per-node=2") as job:
        how = {"program": ELASTIC, "args": (STEPS, "--pace-ms", round(10 * PACE)),
               "OMP_NUM_THREADS": "1"}

        def until_steps_of(size):
            wait_for(
                lambda: sum(m[1] == str(size) for n in job.nodes for m in BEGINS.findall(n.text))
                == size
                or a.process.poll() is not None,
                f"{size} ranks",
            )

        a = job.start_host("a", **how)
        until_steps_of(2)
        b = job.start("b", **how)
        until_steps_of(4)
        c = job.start("c", **how)
        until_steps_of(6)
        first = {m[3] for m in BEGINS.findall(a.text)}
        b.process.send_signal(signal.SIGUSR1)
        assert (a.wait(), b.wait(), c.wait()) == (0, 1, 0)
        text = a.text + b.text + c.text
        assert "failed first" not in text, text
        changes = stops.findall(a.text)
        assert len(changes) == 6 and len({m[1] for m in changes}) == 3, changes
        last = changes[-1][1]
        assert [m[1] for m in stops.findall(text)].count(last) == 6, stops.findall(text)
        assert all(
            "preemption" in m[2] for m in stops.findall(text) if m[1] == last
        ), stops.findall(text)
        ends = ENDS.findall(a.text + c.text)
        assert len(ends) == 4 and {e[1] for e in ends} == {"4"}, ends
        assert {e[2] for e in ENDS.findall(a.text)} == first and len(first) == 2, (ends, first)
        assert {e[5] for e in ends} == {undisturbed()}, ends


if __name__ == "__main__":
    run_tests(globals())
