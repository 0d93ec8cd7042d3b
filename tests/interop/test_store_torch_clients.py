#!/usr/bin/env python3
# timeout: 300
"""A real torch's TCPStore clients, and whole process groups of them, against our server."""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
from crun_test import TIMEOUT_S, clean_env, run, run_tests, skip, start, torch_python
from store_raw import Modern, Server

PYTHON = torch_python()

CLIENT = """
import datetime, sys, torch.distributed as dist
host, port = sys.argv[1], int(sys.argv[2])
second = datetime.timedelta(seconds=1)
s = dist.TCPStore(host, port, None, False, timeout=datetime.timedelta(seconds=60))
s.set("k", "v"); assert s.get("k") == b"v"
s.set("", b""); assert s.get("") == b""
s.set("bin", bytes(range(256))); assert s.get("bin") == bytes(range(256))
s.set("nul\\0key", "x"); assert s.get("nul\\0key") == b"x"
assert s.add("n", 5) == 5 and s.add("n", -7) == -2 and s.get("n") == b"-2"
assert s.compare_set("c", "", "a") == b"a" and s.compare_set("c", "x", "b") == b"a"
assert s.compare_set("c", "a", "b") == b"b" and s.get("c") == b"b"
s.wait(["k", "n"], second)
before = s.num_keys()
assert s.delete_key("k") and not s.delete_key("k") and s.num_keys() == before - 1
try:
    s.wait(["never"], second)
    raise SystemExit("the wait did not time out")
except RuntimeError:
    pass
except Exception as e:  # DistStoreError of newer releases
    assert "imeout" in str(e) or "imed out" in str(e), e
if hasattr(s, "append"):  # torch 2.1 and later
    s.append("app", "a"); s.append("app", "b"); assert s.get("app") == b"ab"
    s.multi_set(["m1", "m2"], ["1", "22"]); assert s.multi_get(["m2", "m1"]) == [b"22", b"1"]
    assert s.check(["m1", "m2"]) and not s.check(["m1", "none"])
if hasattr(s, "queue_push"):  # 2.8
    s.queue_push("q", "a"); s.queue_push("q", "b"); assert s.queue_len("q") == 2
    assert s.queue_pop("q") == b"a" and s.queue_pop("q") == b"b"
if hasattr(s, "list_keys"):  # 2.10
    assert "m1" in s.list_keys()
if hasattr(s, "barrier"):  # newer still
    import threading
    t = dist.TCPStore(host, port, None, False, timeout=datetime.timedelta(seconds=60))
    other = threading.Thread(target=lambda: t.barrier("meet", 2)); other.start()
    s.barrier("meet", 2); other.join()
    try:
        s.barrier("alone", 2, second)
        raise SystemExit("the barrier did not time out")
    except Exception as e:
        assert "imeout" in str(e) or "imed out" in str(e), e
    assert s.get("meet") == b"2" and s.get("alone") == b"1"
big = bytes(8 << 20)
s.set("big", big); assert s.get("big") == big
p = dist.PrefixStore("outer", dist.PrefixStore("pre", s))
p.set("k", "v"); assert s.get("pre/outer/k") == b"v"
print(dist.__name__, __import__("torch").__version__, "done")
"""

GROUP = """
import datetime, os, torch, torch.distributed as dist
dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=60))
t = torch.tensor([float(dist.get_rank() + 1)])
dist.all_reduce(t)
dist.barrier()
n = dist.get_world_size()
assert t.item() == n * (n + 1) / 2, t
print(f"rank {dist.get_rank()} done")
dist.destroy_process_group()
"""


RENDEZVOUS = """
import sys
from torch.distributed.elastic.rendezvous import RendezvousParameters
from torch.distributed.elastic.rendezvous.c10d_rendezvous_backend import create_backend
from torch.distributed.elastic.rendezvous.dynamic_rendezvous import create_handler
params = RendezvousParameters(backend="c10d", endpoint="127.0.0.1:" + sys.argv[1], run_id="job",
                              min_nodes=2, max_nodes=2, is_host="0", last_call_timeout=2)
backend, store = create_backend(params)
handler = create_handler(store, backend, params)
done = handler.next_rendezvous()
store, rank, world = done if isinstance(done, tuple) else (done.store, done.rank, done.world_size)
store.set("node%d" % rank, "here")
assert store.get("node%d" % (1 - rank)) == b"here"
print(f"node {rank} of {world}", flush=True)
"""


def test_every_operation_of_the_client(tmp):
    with Server() as server:
        done = run([PYTHON, "-c", CLIENT, "127.0.0.1", server.port])
        assert done.returncode == 0 and "done" in done.stdout, done
        print(done.stdout.strip())
        # Written by torch, read by a peer of the newest generation.
        assert Modern(server).get("bin") == bytes(range(256))


def test_join_of_workers(tmp):
    """wait_for_workers: every client adds to init/, nobody is left behind."""
    join = ("import datetime, sys, torch.distributed as dist\n"
            "minute = datetime.timedelta(seconds=60)\n"
            "s = dist.TCPStore('127.0.0.1', int(sys.argv[1]), 3, False, minute)\n"
            "s.set('rank' + sys.argv[2], 'here')\n")
    with Server() as server:
        ranks = [start([PYTHON, "-c", join, server.port, i]) for i in range(3)]
        for r in ranks:
            out, err = r.communicate(timeout=TIMEOUT_S)
            assert r.returncode == 0, err
        c = Modern(server)
        c.say("get", b"\x05\0\0\0\0\0\0\0init/")
        assert c.value() == b"3"


def test_process_group(tmp):
    """env:// with the agent's store, as workers under a launcher do it."""
    with Server() as server:
        ranks = []
        for rank in range(3):
            env = clean_env(MASTER_ADDR="127.0.0.1", MASTER_PORT=server.port, RANK=rank,
                            WORLD_SIZE=3,
                            TORCHELASTIC_USE_AGENT_STORE="True", TORCHELASTIC_RESTART_COUNT=0,
                            GLOO_SOCKET_IFNAME="lo")
            ranks.append(start([PYTHON, "-c", GROUP], env=env))
        for rank, process in enumerate(ranks):
            out, err = process.communicate(timeout=TIMEOUT_S)
            assert process.returncode == 0 and f"rank {rank} done" in out, err


def test_elastic_rendezvous(tmp):
    """Two of torch's agents agree through our store: compare_set on one key, again and again."""
    with Server() as server:
        nodes = [start([PYTHON, "-c", RENDEZVOUS, server.port]) for _ in range(2)]
        said = set()
        for node in nodes:
            out, err = node.communicate(timeout=TIMEOUT_S)
            assert node.returncode == 0, err
            said.add(out.strip())
        assert said == {"node 0 of 2", "node 1 of 2"}, said


if __name__ == "__main__":
    if PYTHON is None:
        skip("no Python here has torch")
    run_tests(globals())
