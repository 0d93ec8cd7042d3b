#!/usr/bin/env python3
# timeout: 180
"""The endpoint is a TCPStore that is not crun's: the nodes elect the one that hosts the coordinator
with the store's compare_set, and meet at an address of that node. Here the store is a crun-store;
tests/interop/test_signpost_torch.py does the same with torch's."""
import pathlib
import re
import signal
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
from crun_test import CRUN_STORE, PACE, SCALE, run_tests, start, wait_for
from nodes import Nodes

KEY = "crun/rendezvous/job"
CONF = f"last_call_timeout=0.3,keep_alive_interval={PACE:g},keep_alive_max_attempt=4"
VALUE = re.compile(r"crun-rendezvous 1 (\d+) (\d+) (\d+) (\S+) [0-9a-f]+")


class Signpost:
    """A crun-store, with the value that says where the coordinator is."""
    def __init__(self, tmp):
        self.process = start([CRUN_STORE, "serve", "--host=127.0.0.1"],
                             stderr=open(tmp / "store.err", "w", encoding="utf-8"))
        self.endpoint = self.process.stdout.readline().strip()

    def value(self):
        """Returns (epoch, turn, port) of the key; None if it is empty or not there."""
        done = subprocess.run([CRUN_STORE, "keys", self.endpoint], capture_output=True, text=True)
        if KEY not in done.stdout:
            return None
        done = subprocess.run([CRUN_STORE, "get", self.endpoint, KEY], capture_output=True,
                              text=True)
        found = VALUE.match(done.stdout)
        return tuple(map(int, found.groups()[:3])) if found else None

    def set(self, text):
        done = subprocess.run([CRUN_STORE, "set", self.endpoint, KEY, text])
        assert done.returncode == 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.communicate()


def hosting(nodes):
    return [n for n in nodes if "this node hosts the coordinator" in n.text]


def end_well(workers, launchers):
    for w in workers:
        w.signal(Nodes.WELL)
    assert [n.wait() for n in launchers] == [0] * len(launchers)


def test_the_nodes_meet_at_the_one_that_the_signpost_names(tmp):
    with Signpost(tmp) as post, Nodes(tmp, "--nnodes=3", endpoint=post.endpoint,
                                      conf=CONF) as nodes:
        all_nodes = [nodes.start(name) for name in "abc"]
        workers = nodes.round(workers=3)
        for n in all_nodes:
            assert "is a TCPStore that is not crun's: it serves as a signpost" in n.text, n.text
        assert len(hosting(all_nodes)) == 1, [n.text for n in all_nodes]
        assert post.value()[:2] == (1, 0), post.value()
        end_well(workers, all_nodes)
        assert post.value() is None, "the key is empty when the job is over"


def test_a_node_that_comes_later_finds_the_others(tmp):
    with Signpost(tmp) as post, Nodes(tmp, "--nnodes=1:2", endpoint=post.endpoint,
                                      conf=CONF + ",change_notice=0") as nodes:
        a = nodes.start("a")
        nodes.round(workers=1)
        b = nodes.start("b")
        end_well(nodes.round(workers=2), [a, b])


def test_a_node_that_is_named_but_gone_is_replaced(tmp):
    """The value is that of a launcher that was killed: nobody listens at its port."""
    with Signpost(tmp) as post, Nodes(tmp, "--nnodes=2", endpoint=post.endpoint,
                                      conf=CONF) as nodes:
        post.set("crun-rendezvous 1 7 3 1 127.0.0.1 abc")
        both = [nodes.start(name) for name in "ab"]
        workers = nodes.round(workers=2)
        assert any("no coordinator answers at '127.0.0.1' port 1, which the TCPStore" in n.text
                   for n in both), [n.text for n in both]
        epoch, turn, _ = post.value()
        assert epoch == 7 and turn >= 4, (epoch, turn)
        end_well(workers, both)


def test_a_node_that_takes_over_is_named(tmp):
    """The hosting node is killed; the heir writes its address, and a new node finds it there."""
    with Signpost(tmp) as post, Nodes(tmp, "--nnodes=2:3", endpoint=post.endpoint,
                                      conf=CONF + ",change_notice=0") as nodes:
        launchers = [nodes.start(name) for name in "abc"]
        nodes.round(workers=3)
        (host,) = hosting(launchers)
        first = post.value()
        host.signal(signal.SIGKILL)
        nodes.round(workers=2)
        wait_for(lambda: post.value() and post.value()[0] > first[0], "the heir's value")
        assert post.value()[2] != first[2], (first, post.value())
        launchers = [n for n in launchers if n is not host] + [nodes.start("d")]
        end_well(nodes.round(workers=3), launchers)


def test_the_store_forgets(tmp):
    """The key is written again if the store loses it."""
    with Signpost(tmp) as post, Nodes(tmp, "--nnodes=2", endpoint=post.endpoint,
                                      conf=CONF) as nodes:
        both = [nodes.start(name) for name in "ab"]
        workers = nodes.round(workers=2)
        first = post.value()
        assert first is not None
        done = subprocess.run([CRUN_STORE, "delete", post.endpoint, KEY])
        assert done.returncode == 0
        wait_for(lambda: post.value() == first, "the value to be written again")
        end_well(workers, both)


def test_a_key_that_is_not_ours_is_left_alone(tmp):
    with Signpost(tmp) as post, Nodes(tmp, "--nnodes=2", endpoint=post.endpoint,
                                      conf=f"{CONF},read_timeout={2 * PACE:g}") as nodes:
        post.set("something else")
        a = nodes.start("a")
        assert a.wait() == 1
        assert "the TCPStore's key of this job is not crun's" in a.text, a.text
        done = subprocess.run([CRUN_STORE, "get", post.endpoint, KEY], capture_output=True,
                              text=True)
        assert done.stdout.strip() == "something else", done


def test_a_torchrun_that_looks_for_a_job_of_crun_is_named(tmp):
    """torchrun keeps the state of its rendezvous under this key; here crun-store names the key."""
    with Nodes(tmp, "--nnodes=2", conf=CONF) as nodes:
        a = nodes.start("a")
        wait_for(lambda: "1 waiting, 2:2 wanted" in a.text, "the first node")
        done = subprocess.run([CRUN_STORE, "set", nodes.endpoint, "torch.rendezvous.other", "x"])
        assert done.returncode == 0, "another job may use the store"
        began = time.monotonic()
        done = subprocess.run([CRUN_STORE, "set", nodes.endpoint, "torch.rendezvous.job", "x"],
                              capture_output=True)
        assert done.returncode == 1, done
        wait_for(lambda: "it is a torchrun that looks for job 'job', which crun serves here" in
                 a.text, "crun to name the torchrun")
        assert time.monotonic() - began < 1 * SCALE, time.monotonic() - began


if __name__ == "__main__":
    run_tests(globals())
