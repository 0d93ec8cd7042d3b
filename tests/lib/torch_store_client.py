"""Tests all calls of this torch's TCPStore with a server at argv[1]:argv[2]. If the server has no
queues, argv[3] is "queues"."""
import datetime
import os
import sys
import threading
import time

import torch
import torch.distributed as dist

host, port = sys.argv[1], int(sys.argv[2])
lacks = sys.argv[3:]
backend = {"use_libuv": False} if os.environ.get("USE_LIBUV") == "0" else {}


def open_store(timeout_s=30):
    return dist.TCPStore(host, port, None, False, datetime.timedelta(seconds=timeout_s), **backend)


def fails(call, text):
    """Checks that the call raises an error that contains the text. Returns how long it took."""
    begin = time.monotonic()
    try:
        call()
    except Exception as e:  # noqa: BLE001: torch 1.13 raises RuntimeError, later ones their own
        assert text.lower() in str(e).lower(), e
        return time.monotonic() - begin
    raise AssertionError(f"no error with '{text}'")


def test_values(store):
    assert store.num_keys() == 0
    store.set("k", "v1")
    assert store.get("k") == b"v1"
    store.set("", "")
    assert store.get("") == b""
    odd = "a\0\n\u00e9"
    store.set(odd, odd)
    assert store.get(odd) == odd.encode()
    for size in (1 << 20, 8 << 20):
        value = "x" * size
        store.set("big", value)
        assert store.get("big") == value.encode()
    assert store.num_keys() == 4


def test_counters(store):
    assert store.add("ctr", 5) == 5
    assert store.add("ctr", -7) == -2
    assert store.get("ctr") == b"-2"
    for text, number in (("12abc", 12), (" 7", 7), ("+5", 5), ("-3\n", -3), ("0x10", 0),
                         ("1.5", 1)):
        store.set("odd counter", text)
        assert store.add("odd counter", 0) == number, text
    store.set("odd counter", str(2 ** 63 - 1))
    assert store.add("odd counter", 1) == -2 ** 63


def test_compare_set(store):
    assert store.compare_set("cs", "", "a") == b"a"
    assert store.compare_set("cs", "a", "b") == b"b"
    assert store.compare_set("cs", "zz", "c") == b"b"
    assert store.compare_set("nokey", "exp", "des") == b"exp"


def test_delete(store):
    store.set("gone", "x")
    assert store.delete_key("gone") is True
    assert store.delete_key("gone") is False


def test_waiting(store):
    store.wait(["k", "ctr"])
    other = open_store()
    thread = threading.Thread(target=lambda: other.wait(["late 1", "late 2"]))
    thread.start()
    store.set("late 1", "")
    store.add("late 2", 1)
    thread.join(30)
    assert not thread.is_alive()
    timeout = datetime.timedelta(milliseconds=300)
    took = fails(lambda: other.wait(["never"], timeout), "timeout")
    assert took >= 0.29, took
    # After a wait has timed out, the next request gets its own reply, even if the key comes late.
    other.num_keys()
    store.set("never", "x")
    other.set("after", "1")
    assert other.get("after") == b"1"
    assert other.num_keys() == store.num_keys()


def test_prefix(store):
    prefixed = dist.PrefixStore("outer", dist.PrefixStore("pre", store))
    prefixed.set("k", "p")
    assert store.get("pre/outer/k") == b"p"
    assert prefixed.add("n", 3) == 3
    assert prefixed.num_keys() == store.num_keys()
    prefixed.wait(["k", "n"])
    assert prefixed.compare_set("k", "p", "q") == b"q"
    assert prefixed.delete_key("k")


def test_extended(store):
    store.append("log", "ab")
    store.append("log", "cd")
    assert store.get("log") == b"abcd"
    store.multi_set(["m1", "m2"], ["1", "22"])
    assert store.multi_get(["m1", "m2", "m1"]) == [b"1", b"22", b"1"]
    assert store.multi_get([]) == []
    many = [f"many/{i}" for i in range(10000)]
    store.multi_set(many, [str(i) for i in range(10000)])
    assert store.multi_get(many) == [str(i).encode() for i in range(10000)]
    assert store.check(["m1", "log"]) and not store.check(["m1", "nope"])


def test_queues(store):
    other = open_store()
    for job in ("a", "b", "c"):
        store.queue_push("q", job)
    assert store.queue_len("q") == 3
    assert [other.queue_pop("q") for _ in range(3)] == [b"a", b"b", b"c"]
    fails(lambda: other.queue_pop("q", block=False), "queue")
    got = []
    thread = threading.Thread(target=lambda: got.append(other.queue_pop("q")))
    thread.start()
    store.queue_push("q", "late")
    thread.join(30)
    assert got == [b"late"], got


def test_list_keys(store):
    keys = store.list_keys()
    assert len(keys) == len(set(keys)) and "k" in keys and "log" in keys, keys[:20]
    assert not [key for key in keys if key.startswith("init")]


def test_barrier(store):
    others = [open_store() for _ in range(2)]
    threads = [threading.Thread(target=s.barrier, args=("meet", 3)) for s in others]
    for thread in threads:
        thread.start()
    store.barrier("meet", 3)
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()


def test_join(store):
    begin = store.num_keys()
    joined = dist.TCPStore(host, port, 2, False, datetime.timedelta(seconds=30), **backend)
    assert joined.num_keys() == begin + 1  # the key init/ of torch itself
    del joined


store = open_store()
names = ["values", "counters", "compare_set", "delete", "waiting", "prefix"]
if hasattr(store, "multi_get"):
    names.append("extended")
for name, method in (("queues", "queue_push"), ("list_keys", "list_keys"), ("barrier", "barrier")):
    if hasattr(store, method) and name not in lacks:
        names.append(name)
names.append("join")
for name in names:
    globals()["test_" + name](store)
fresh = open_store()
fresh.set("text", "abc")
fails(lambda: fresh.add("text", 1), "")
assert store.get("text") == b"abc"
print("torch", torch.__version__, "did", " ".join(names))
