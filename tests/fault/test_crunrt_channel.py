#!/usr/bin/env python3
# timeout: 400
"""A worker on libcrunrt, and an agent that the test plays: changes with notice, rejoining
together with a newly started process, flight records, and agents that die, send nonsense, or are
not there."""

import json
import os
import re
import signal
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from fake_agent import FakeAgent
from link_worker import DUMPED, LIMIT, READY, REJOIN, STOP_AT, packet
from workers import BUILD, Store, Worker, contract, expect, fail, program, wait_for

GLOO = {} if os.path.exists(f"{BUILD}/lib/crunrt/gloo.so") else {"TEST_NO_GROUP": "1"}


def start(store, agent, how, rank=0, world=1, limit=None, **extra):
    variable = agent if isinstance(agent, str) else agent.variable if agent else None
    argv = [program("crunrt_worker"), "steps", how] + ([str(limit)] if limit else [])
    return Worker(argv, contract(store, rank, world, CRUN_AGENT=variable, **GLOO, **extra))


def begin(store, how, **extra):
    """An agent, its one worker, and the channel between them."""
    agent = FakeAgent()
    worker = start(store, agent, how, **extra)
    return worker, agent, agent.accept()


def check(workers, condition, why):
    if not condition:
        for w in workers:
            w.process.kill()
            w.process.wait()
        fail(workers, why)


def stopped_at(worker):
    """(the worker's own count, the step of crunrt_change) of its last change."""
    return [
        tuple(map(int, m)) for m in re.findall(r"change \d+ after (\d+) \((\d+)\)", worker.text())
    ][-1]


def test_no_change(store):
    worker, _, link = begin(store, "exit", limit=50)
    while link.receive() is not None:
        pass
    wait_for([worker])
    expect([worker], 0, 0, "ended")
    check([worker], link.step == 50 and link.stopped_for == 0, f"{link.step} steps in the page")


def test_a_frozen_worker_makes_no_more_than_one_step(store):
    worker, _, link = begin(store, "exit")
    link.until(lambda: link.step > 5)
    link.change(7, kind=3, why="the node is taken away")
    seen = link.step
    time.sleep(0.3)  # enough for hundreds of steps
    check([worker], link.step <= seen + 1, f"{link.step} steps, {seen} when it was frozen")
    link.stop_at(7, seen + 25)
    wait_for([worker])
    expect([worker], 0, 0,
           f"change 3 after {seen + 25} ({seen + 25}) left 1: the node is taken away", "ended")
    check([worker], link.stopped_for == 7, f"stopped for {link.stopped_for}")


def test_stop_at_of_another_change_is_not_ours(store):
    worker, _, link = begin(store, "exit")
    link.until(lambda: link.step > 0)
    link.change(2)
    link.stop_at(1, 1)
    seen = link.step
    time.sleep(0.1)
    check([worker], link.stopped_for == 0 and link.step <= seen + 1, "it took the wrong one")
    link.change(3)  # replaces the earlier change
    link.stop_at(3, seen + 2)
    wait_for([worker])
    expect([worker], 0, 0, f"after {seen + 2} ")


def test_what_a_worker_says(store):
    for how, expected in (("needs", (2, 4321)), ("now", (1, 0)), ("exit", (0, 0))):
        worker, _, link = begin(store, how)
        link.until(lambda: link.step > 0)
        check([worker], (link.answer, link.needs_ms) == expected,
              f"{how}: {link.answer} {link.needs_ms}")
        check([worker], link.can_rejoin == 0, "it cannot")
        worker.process.kill()
        worker.process.wait()
    worker, _, link = begin(store, "watch")
    check([worker], link.receive()["type"] == LIMIT and link.limit_ms == 777, "no limit")
    worker.process.kill()
    worker.process.wait()


def test_ready(store):
    worker, _, link = begin(store, "done")
    link.until(lambda: link.step > 0)
    link.change(9)
    link.stop_at(9, link.step + 1)
    ready = link.receive()
    check([worker], (ready["type"], ready["id"]) == (READY, 9), f"{ready}")
    worker.process.terminate()
    wait_for([worker])
    expect([worker], 0, -signal.SIGTERM)


def test_rejoin_with_a_process_started_anew(first):
    with Store() as second:
        worker, _, link = begin(first, "rejoin")
        link.until(lambda: link.step > 0)
        check([worker], link.can_rejoin == 1, "it can")
        link.change(1)
        link.stop_at(1, link.step + 1)
        check([worker], link.receive()["type"] == REJOIN, "no REJOIN")
        with FakeAgent() as other:
            fresh = start(second, other, "rejoin", rank=0, world=2, TORCHELASTIC_RESTART_COUNT="1")
            links = [link, other.accept()]
            link.round(1, 2, 1, second.port, local_rank=0, local_world_size=1)
            both = [worker, fresh]
            for one in links:
                one.until(lambda: one.step > 3 or any(w.process.poll() is not None for w in both),
                          "the second round")
            check(both,
                  "rejoined rank 1 of 2 local 0 of 1 restart 1\nmet 2" in worker.text() or GLOO,
                  "rejoined")
            check(both, "began rank 0 of 2 local 0 of 2 restart 1\nmet 2" in fresh.text() or GLOO,
                  "fresh")
            # Another worker fails; then the same two rejoin with swapped ranks, and then a change
            # comes. Their counts of steps begin again in each round.
            with Store() as third:
                for one in links:
                    one.over("a worker failed")
                    check(both, one.receive()["type"] == REJOIN, "no REJOIN after a failure")
                link.round(0, 2, 2, third.port)
                links[1].round(1, 2, 2, third.port)
                for one in links:
                    one.until(
                        lambda: one.step > 3 or any(w.process.poll() is not None for w in both),
                        "the third round")
                check(both, "rejoined rank 0 of 2 local 0 of 1 restart 2" in worker.text(),
                      "third round")
                check(both, "rejoined rank 1 of 2 local 0 of 1 restart 2" in fresh.text(),
                      "third round")
                for number, one in enumerate(links):
                    one.change(3)
                target = max(one.step for one in links) + 1
                for one in links:
                    one.stop_at(3, target)
                    check(both, one.receive()["type"] == REJOIN, "no REJOIN")
                check(
                    both, all(stopped_at(w) == (target, target) for w in both), "they stopped apart"
                )
                for w in both:
                    w.process.kill()
                    w.process.wait()


def test_rejoin_many_times(store):
    """No worker passes the agreed step, and every round counts its steps from 0."""
    worker, _, link = begin(store, "rejoin", TEST_NO_GROUP="1")
    rounds = 200
    for number in range(1, rounds + 1):
        link.until(lambda: link.step > number % 3)
        link.change(number)
        seen = link.step
        target = seen + 1 + number % 4
        link.stop_at(number, target)
        check([worker], link.receive()["type"] == REJOIN, "no REJOIN")
        check([worker], link.step == target and link.stopped_for == number,
              f"{link.step} steps, not {target}")
        link.round(0, 1, number, store.port)
    worker.process.kill()
    worker.process.wait()
    check([worker], worker.text().count("rejoined") >= rounds - 1, "rounds")


def test_rejoin_that_goes_wrong(store):
    for how, text in (
        ("close", "rejoin: the agent is gone; end this process"),
        ("rank", "rejoin: the agent sent a place that makes no sense"),
        ("address", "rejoin: the agent sent a place that makes no sense"),
        ("junk", "rejoin: the agent is gone"),
    ):
        worker, _, link = begin(store, "rejoin")
        link.until(lambda: link.step > 0)
        link.over()
        check([worker], link.receive()["type"] == REJOIN, "no REJOIN")
        if how == "close":
            link.close()
        elif how == "rank":
            link.round(2, 2, 1, store.port)
        elif how == "address":
            link.round(0, 1, 1, store.port, address="x" * 80)
        else:
            link.send(b"junk")
        wait_for([worker])
        expect([worker], 0, 3, text)


def test_agents_that_die_free_the_frozen(store):
    for how in ("close", "junk", "refused", "long"):
        worker, _, link = begin(store, "exit", limit=1000)
        link.change(1)  # before its first step: it must not have made 1,000 when it is frozen
        link.until(lambda: link.step > 0)
        time.sleep(0.05)
        check([worker], link.step == 1, "it is not frozen")
        if how == "close":
            link.close()
        elif how == "junk":
            link.send(b"x")
        elif how == "long":
            link.send(packet(STOP_AT, 1) + b"x")
        else:
            link.refuse("enough")
        wait_for([worker])
        expect([worker], 0, 0, "ended")  # all 1,000 steps


def test_patience_ends(store):
    worker, _, link = begin(store, "exit", limit=5000)
    begun = time.monotonic()
    link.change(1, left_ms=200)
    seen = link.step
    link.until(lambda: link.step > seen + 1)
    check([worker], time.monotonic() - begun >= 5, "it went on before the change's time was over")
    link.stop_at(1, 1)  # too late: the change has been dropped
    wait_for([worker])
    expect([worker], 0, 0, "ended")
    check([worker], "change" not in worker.text(), "it heard of a change that was over")


def test_flight_records(store):
    with tempfile.TemporaryDirectory() as folder:
        worker, _, link = begin(store, "exit", CRUNRT_FLIGHT_FILE=f"{folder}/flight-")
        link.until(lambda: link.step > 0)
        signum = link.hello["dump_signal"]
        check([worker], signum == signal.SIGRTMIN + 5, f"signal {signum}")
        for number in range(1, 51):
            link.put_dump_id(number)
            os.kill(worker.process.pid, signum)
            dumped = link.receive()
            check([worker], (dumped["type"], dumped["id"]) == (DUMPED, number), f"{dumped}")
            check([worker], dumped["text"] == f"{folder}/flight-0.json", f"{dumped}")
            with open(dumped["text"], encoding="utf-8") as f:
                record = json.load(f)
            check([worker], record["agent"] == "connected"
                  and "requested by the agent" in record["reason"], f"{record}")
        link.close()  # a signal that comes late does no harm
        os.kill(worker.process.pid, signum)
        worker.process.kill()
        worker.process.wait()
        for value, expected in ((None, signal.SIGRTMIN + 5), ("0", 0), ("40", 40), ("nonsense", 0)):
            worker, _, link = begin(store, "exit", CRUNRT_DUMP_SIGNAL=value)
            check([worker], link.hello["dump_signal"] == expected, f"{value}: {link.hello}")
            worker.process.kill()
            worker.process.wait()


def test_agents_that_are_not_there(store):
    """No call fails, and the flight record shows the reason."""
    with tempfile.TemporaryDirectory() as folder:
        for variable, fact in (
            (None, "none is named"),
            ("rubbish", "is not an address"),
            (":", "is not an address"),
            ("x" * 5000, "is not an address"),
            ("nobody:" + "0" * 32, "refused"),
            ("no\nbo\"dy:" + "0" * 32, "refused"),
        ):
            path = f"{folder}/flight-0.json"
            if os.path.exists(path):
                os.remove(path)
            worker = start(store, variable, "exit", limit=3, CRUNRT_FLIGHT_FILE=f"{folder}/flight-",
                           TEST_DUMP="1")
            wait_for([worker])
            expect([worker], 0, 0, "ended")
            with open(path, encoding="utf-8") as f:
                record = json.load(f)
            check([worker], fact in record["agent"], f"{variable}: {record['agent']}")


def test_a_stopped_agent_holds_nobody_up(store):
    with FakeAgent() as agent:  # never accepts
        begun = time.monotonic()
        worker = start(store, agent, "exit", limit=3)
        wait_for([worker])
        expect([worker], 0, 0, "ended")
        check([worker], time.monotonic() - begun < 60, "it took too long")


def test_the_link_ends_with_the_runtime(store):
    """A program that the worker executes, or leaves behind, inherits no descriptor."""
    worker, _, link = begin(store, "exit")
    link.until(lambda: link.step > 0)
    os.kill(worker.process.pid, signal.SIGSTOP)  # so that it closes none while we look
    inherits = [
        t
        for t in os.listdir(f"/proc/{worker.process.pid}/fd")
        if "socket" in os.readlink(f"/proc/{worker.process.pid}/fd/{t}")
    ]
    check([worker], inherits, "it has no socket")
    for fd in inherits:
        with open(f"/proc/{worker.process.pid}/fdinfo/{fd}", encoding="utf-8") as f:
            flags = int(re.search(r"flags:\s*(\d+)", f.read())[1], 8)
        check([worker], flags & os.O_CLOEXEC, f"descriptor {fd} is inherited")
    os.kill(worker.process.pid, signal.SIGCONT)
    link.change(1)
    link.stop_at(1, link.step + 1)
    check([worker], link.receive() is None, "more packets")
    wait_for([worker])
    expect([worker], 0, 0, "ended")


def main():
    tests = [(n, f) for n, f in globals().items() if n.startswith("test_")]
    chosen = sys.argv[1:]
    for name, test in tests:
        if chosen and name not in chosen:
            continue
        begun = time.monotonic()
        with Store() as store:
            test(store)
        print(f"ok {name} ({time.monotonic() - begun:.1f} s)", flush=True)
    print("PASS")


if __name__ == "__main__":
    main()
