"""Tests that our stores and those of any release of torch work with each other."""
import json
import os
import subprocess
import sys
import threading

from crun_test import TIMEOUT_S, clean_env
from store_peer import Driver, Raw, StoreError, to_hex

HERE = os.path.dirname(os.path.abspath(__file__))


def torch_script(name):
    return os.path.join(HERE, name)


def run_torch(python, script, *args, **env):
    done = subprocess.run([python, torch_script(script), *map(str, args)], capture_output=True,
                          text=True, timeout=TIMEOUT_S * 3, env=clean_env(**env))
    assert done.returncode == 0, f"{script} {args}: {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def refused(call, *codes):
    try:
        call()
    except StoreError as e:
        assert e.code in codes, e
        return e.text
    raise AssertionError("no error")


def exercise_client(make_server, protocol, has):
    """Tests our client with a new server. The client's probe must find `protocol`; `has` names the
    operations that not every server has, but this one."""
    with make_server() as server:
        exercise_client_on(server.port, protocol, has)


def exercise_client_on(port, protocol, has):
    with Driver("tcp", port) as store:
        assert store.protocol == protocol, store.protocol
        assert store.num_keys() == 0
        store.set("k", "v1")
        assert store.get("k") == b"v1"
        store.set("", "")
        assert store.get("") == b""
        odd = bytes(range(256))
        store.set(odd, odd)
        assert store.get(odd) == odd
        big = odd * 32768  # 8 MiB: the limit of torch for one request
        store.set("big", big)
        assert store.get("big") == big
        assert (store.add("ctr", 5), store.add("ctr", -7)) == (5, -2)
        assert store.get("ctr") == b"-2"
        assert store.compare_set("cs", "", "a") == b"a"
        assert store.compare_set("cs", "a", "b") == b"b"
        assert store.compare_set("cs", "zz", "c") == b"b"
        assert store.compare_set("nokey", "exp", "des") == b"exp"
        assert store.check("k", "ctr") and not store.check("k", "nope")
        assert store.delete("k") and not store.delete("k")
        assert store.add_raw("init/", 1) == 1
        waits_and_gives_up(store, port)
        store.append("log", "ab")
        store.append("log", "cd")
        assert store.get("log") == b"abcd"
        store.multi_set({"m1": "1", "m2": "22"})
        assert store.multi_get("m1", "m2", "m1") == [b"1", b"22", b"1"]
        optional(store, port, has)


def waits_and_gives_up(store, port):
    text = refused(lambda: store.wait("never", timeout_ms=300), -110)
    assert text.startswith("wait for 'never' at store 127.0.0.1:"), text
    refused(lambda: store.get("never", timeout_ms=0), -110)
    with Driver("tcp", port) as other:
        other.set("never", "x")
        seen = other.num_keys()  # after this reply, the SET is done
        assert store.num_keys() == seen  # a right reply, although the key came late
        store.send("wait", *map(to_hex, ["late 1", "late 2"]))
        other.set("late 2", "")
        other.add("late 1", 1)
        store.answer()


def optional(store, port, has):
    lacks = "the store's server does not have this operation"
    if "queues" in has:
        store.queue_push("q", "a")
        store.queue_push("q", "b")
        assert store.queue_len("q") == 2
        assert (store.queue_pop("q"), store.queue_pop("q")) == (b"a", b"b")
        refused(lambda: store.queue_pop("q", timeout_ms=0), -2)
        with Driver("tcp", port) as other:
            store.send("queue_pop", to_hex("q"))
            other.queue_push("q", "late")
            assert store.answer() == [to_hex("late")]
    else:
        assert lacks in refused(lambda: store.queue_len("q"), -95)
    if "list_keys" in has:
        assert set(store.list_keys()) >= {b"", b"log", b"ctr"}
        assert b"init/" not in store.list_keys()
    else:
        assert lacks in refused(store.list_keys, -95)
    with Driver("tcp", port) as other:  # by BARRIER, or by ADD and WAIT
        refused(lambda: other.barrier("alone", 2, timeout_ms=200), -110)
        assert other.num_keys() > 0
        store.send("barrier", 2, to_hex("meet"))
        other.barrier("meet", 2)
        store.answer()


def run_group(python, script, port, size, *args, attempt=0, **more):
    """Runs `size` ranks of a torch script with the environment that an agent would give them."""
    def env(rank):
        return clean_env(MASTER_ADDR="127.0.0.1", MASTER_PORT=port, RANK=rank, WORLD_SIZE=size,
                         LOCAL_RANK=rank, TORCHELASTIC_USE_AGENT_STORE="True",
                         TORCHELASTIC_RESTART_COUNT=attempt, TORCHELASTIC_MAX_RESTARTS=3,
                         TORCHELASTIC_RUN_ID="interop", OMP_NUM_THREADS=1, **more)
    ranks = [subprocess.Popen([python, torch_script(script), *args], env=env(rank), text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE)
             for rank in range(size)]
    try:
        outputs = [p.communicate(timeout=TIMEOUT_S * 3) for p in ranks]
    finally:
        for p in ranks:
            p.kill()
    for p, (out, err) in zip(ranks, outputs):
        assert p.returncode == 0, f"exit {p.returncode}\n{out}\n{err}"


def share_file(python, path, torch_ranks, c_ranks):
    """Runs processes of torch and of C as one group with one file store. The last process that
    closes the store must remove the file."""
    size = torch_ranks + c_ranks
    torches = [subprocess.Popen([python, torch_script("torch_file_store.py"), path, str(size),
                                 str(r)],
                                env=clean_env(), text=True, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE) for r in range(torch_ranks)]
    values, failures = {}, []

    def c_rank(rank):
        try:
            with Driver("file", path, size) as store:
                store.set(f"rank/{rank}", f"C {rank}")
                for _ in range(100):
                    store.add("sum", 1)
                values[rank] = [store.get(f"rank/{r}", timeout_ms=120000) for r in range(size)]
                if store.add("arrived", 1) == size:
                    store.set("all", "here")
                store.wait("all", timeout_ms=120000)
                assert store.add("sum", 0) == 100 * size
                assert store.compare_set("first", "", "c") in (b"c", b"torch")
        except Exception as e:  # the main thread reports it
            failures.append(e)

    threads = [threading.Thread(target=c_rank, args=(r,)) for r in range(torch_ranks, size)]
    for thread in threads:
        thread.start()
    outputs = [p.communicate(timeout=TIMEOUT_S * 3) for p in torches]
    for thread in threads:
        thread.join(TIMEOUT_S * 3)
    for p, (out, err) in zip(torches, outputs):
        assert p.returncode == 0, f"{out}\n{err}"
    assert not failures, failures
    want = [f"torch {r}" for r in range(torch_ranks)] + [f"C {r}" for r in range(torch_ranks, size)]
    assert all(seen == [w.encode() for w in want] for seen in values.values()), values
    words = "_".join(want).replace(" ", "_").split()
    assert all(out.split() == words for out, _ in outputs), outputs
    assert not os.path.exists(path), "the last to leave did not remove the file"


# ---- golden bytes ----

def unhex(text):
    return bytes.fromhex(text.replace(" ", ""))


def replay(port, vectors, before=b""):
    """Sends each request of the list of (name, request, reply) on one connection. Returns the name
    and the bytes of each reply that is another one. If a request has no reply, only the replies
    to later requests show that the server has executed it."""
    wrong = []
    with Raw(port) as raw:
        raw.send(before)
        for name, request, reply in vectors:
            raw.send(unhex(request))
            got = raw.read(len(unhex(reply)))
            if got != unhex(reply):
                wrong.append((name, got.hex(" ")))
    return wrong


def u64(n):
    return n.to_bytes(8, "little").hex()


def say(**facts):
    print(json.dumps(facts), file=sys.stderr)
