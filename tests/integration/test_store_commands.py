#!/usr/bin/env python3
"""crun-store's commands against our server: results, exit statuses, and one line for every
mistake."""
import json
import os
import signal
import socket
import subprocess
import sys
import threading

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from crun_test import CRUN_STORE, SCALE, TIMEOUT_S, run_tests, wait_for  # noqa: E402
from store_peer import Driver, Server, to_hex  # noqa: E402


def run(*words, stdin=None, status=0):
    done = subprocess.run([CRUN_STORE, *map(str, words)], capture_output=True, input=stdin,
                          timeout=TIMEOUT_S)
    assert done.returncode == status, (words, done)
    return done.stdout, done.stderr.decode()


def fails(*words, status=1):
    out, err = run(*words, status=status)
    assert err.count("\n") == 1 and err.endswith("\n"), err
    return err.strip()


def test_values(tmp):
    with Server() as server:
        at = f"127.0.0.1:{server.port}"
        run("set", at, "k", "v1")
        assert run("get", at, "k")[0] == b"v1\n"
        odd = bytes(range(256)) * 300
        run("set", at, "odd", "-", stdin=odd)
        assert run("get", at, "odd")[0] == odd + b"\n"
        assert json.loads(run("get", "--json", at, "odd")[0])["value"].encode("latin-1") == odd
        assert run("add", at, "c", 5)[0] == b"5\n"
        assert run("add", at, "c", -7)[0] == b"-2\n"
        assert json.loads(run("add", at, "--json", "c", 1)[0]) == {"total": -1}
        assert run("keys", at)[0] == b"c\nk\nodd\n"
        assert run("keys", at, "o")[0] == b"odd\n"
        assert json.loads(run("keys", "--json", at)[0]) == ["c", "k", "odd"]
        run("set", at, "--", "--dashes", "x")
        assert run("get", at, "--", "--dashes")[0] == b"x\n"
        assert fails("get", at, "absent") == \
            "crun-store get: no key 'absent'; 'crun-store keys' lists them"
        assert fails("delete", at, "k", "absent") == "crun-store delete: no key 'absent'"
        assert run("keys", at)[0] == b"--dashes\nc\nodd\n"
        assert b"modern" in run("ping", at)[0]
        assert json.loads(run("ping", "--json", at)[0])["protocol"] == "modern"


def test_odd_keys_are_shown_not_obeyed(tmp):
    """Control sequences in keys reach neither a terminal nor a JSON reader unescaped."""
    odd = {b"plain": b"plain",
           "gr\u00fc\u00df \u6f22 \U0001f600".encode(): "gr\u00fc\u00df \u6f22 \U0001f600".encode(),
           b"\x1b[31m": b"\\x1b[31m", b"\xc2\x9b31m": b"\\xc2\\x9b31m", b"\x9b": b"\\x9b",
           b"a\nb": b"a\\x0ab",
           b"\0\x7f": b"\\x00\\x7f", b"\xff\xc3": b"\\xff\\xc3",
           b"\xe0\x80\x9b": b"\\xe0\\x80\\x9b",
           b"\xed": b"\\xed", b'"\\\'': b'"\\\'', b"": b""}
    with Server() as server, Driver("tcp", server.port) as store:
        at = f"127.0.0.1:{server.port}"
        store.multi_set({key: "" for key in odd})
        assert run("keys", at)[0] == b"".join(odd[key] + b"\n" for key in sorted(odd))
        listed = json.loads(run("keys", "--json", at)[0])
        assert [key.encode("latin-1") for key in listed] == sorted(odd)
        missing = [key + b"?" for key in odd]
        store.send("wait", *map(to_hex, missing))
        wait_for(lambda: json.loads(run("stat", "--json", at)[0])["waiting_clients"] == 1,
                 "the waiter")
        wait = json.loads(run("stat", "--json", at)[0])["waiting"][0]
        assert [key.encode("latin-1") for key in wait["keys"]] == [b"/" + key for key in missing]
        assert run("stat", at)[0].endswith(b" ".join(b"/" + odd[key] + b"?" for key in odd) + b"\n")
        with Driver("tcp", server.port) as other:
            other.multi_set({key: "" for key in missing})
        store.answer()
        assert fails("get", at, "a\nz") == \
            "crun-store get: no key 'a\\x0az'; 'crun-store keys' lists them"
        assert fails("delete", at, "a\nz") == "crun-store delete: no key 'a\\x0az'"
        assert fails("get", at, "k" * 2000).endswith("'; 'crun-store keys' lists them")
        assert fails("a\nb", status=2) == \
            "crun-store: unknown command 'a\\x0ab'; try 'crun-store --help'"


def test_ipv6_is_written_as_it_is_given(tmp):
    if not socket.has_ipv6:
        return
    try:
        held = socket.socket(socket.AF_INET6)
        held.bind(("::1", 0))
    except OSError:
        return  # no IPv6 on this machine
    nobody = f"[::1]:{held.getsockname()[1]}"
    refused = f"crun-store stat: connect to {nobody}: Connection refused"
    assert fails("stat", nobody).startswith(refused)
    held.close()
    with Server("--host", "::1") as server:
        at = f"[::1]:{server.port}"
        assert run("ping", at)[0].startswith(f"{at}: modern, ".encode())
        assert json.loads(run("ping", "--json", at)[0])["host"] == "::1"
        assert json.loads(run("stat", "--json", at)[0])["address"] == at


def test_closed_standard_files(tmp):
    """If crun-store starts with closed stdin and stdout, its sockets must not get the
    descriptors 0 and 1, because libuv would abort."""
    server = subprocess.Popen(["sh", "-c",
                               '"$0" serve --host 127.0.0.1 --port 0 <&- >&- & echo $!; wait $!',
                               CRUN_STORE], stdout=subprocess.PIPE, text=True)
    pid = int(server.stdout.readline())
    files = f"/proc/{pid}/fd"
    wait_for(lambda: any(int(fd) > 2 and link(f"{files}/{fd}").startswith("socket:")
                         for fd in os.listdir(files)), "the server to listen")
    assert [link(f"{files}/{fd}") for fd in (0, 1)] == ["/dev/null"] * 2
    os.kill(pid, signal.SIGTERM)
    assert server.wait(60) == 0
    server.stdout.close()


def link(path):
    try:
        return os.readlink(path)
    except FileNotFoundError:
        return ""


def test_wait(tmp):
    with Server() as server:
        at = f"127.0.0.1:{server.port}"
        run("set", at, "a", "1")
        run("wait", at, "a")
        text = fails("wait", "--timeout", str(SCALE), at, "a", "b")  # enough for connecting
        assert text.startswith("crun-store wait: 'b' is missing: wait for 'a', 'b' at store"), text
        waiter = threading.Thread(target=run, args=("wait", at, "a", "late"))
        waiter.start()
        wait_for(lambda: json.loads(run("stat", "--json", at)[0])["waiting_clients"] == 1,
                 "a waiter")
        run("set", at, "late", "")
        waiter.join(60)
        assert not waiter.is_alive()


def test_stat_says_who_waits(tmp):
    with Server() as server, Driver("tcp", server.port) as one, Driver("tcp", server.port) as two:
        at = f"127.0.0.1:{server.port}"
        one.set("here", "12345")
        one.send("wait", *map(to_hex, ["here", "gone", "w\n\xe9"]))
        two.send("barrier", 2, to_hex("b"))
        wait_for(lambda: json.loads(run("stat", "--json", at)[0])["waiting_clients"] == 2,
                 "waiters")
        stat = json.loads(run("stat", "--json", at)[0])
        assert stat["clients"] == 2 and stat["keys"] == 2, stat
        waits = {wait["kind"]: wait for wait in stat["waiting"]}
        assert waits["wait"]["missing"] == 2 and waits["barrier"]["missing"] == 1, stat
        names = {key.encode("latin-1") for key in waits["wait"]["keys"]}
        assert names == {b"/gone", "/w\n\xe9".encode()}, stat
        text = run("stat", at)[0].decode()
        assert "clients    2" in text and "waiting    2" in text, text
        assert "/gone" in text and "/w\\x0a\xe9" in text, text
        one_set = Driver("tcp", server.port)
        one_set.multi_set({"gone": "", "w\n\xe9": ""})
        one_set.barrier("b", 2)
        one.answer()
        two.answer()
        assert json.loads(run("stat", "--json", at)[0])["waiting_clients"] == 0
        assert "nobody" in run("stat", at)[0].decode()
        one_set.close()


def test_mistakes(tmp):
    usage = {
        (): "crun-store: no command given; try 'crun-store --help'",
        ("frob",): "crun-store: unknown command 'frob'; try 'crun-store --help'",
        ("get",):
            "crun-store get: no HOST:PORT given; give HOST:PORT KEY; try 'crun-store get --help'",
        ("get", "localhost", "k"):
            "crun-store get: no port in 'localhost': write HOST:PORT; try 'crun-store get --help'",
        ("get", "a:b", "k"):
            "crun-store get: the port of endpoint 'a:b' must be a number from 0 to 65535; try "
            "'crun-store get --help'",
        ("get", "h:1"):
            "crun-store get: no KEY given; give HOST:PORT KEY; try 'crun-store get --help'",
        ("get", "h:1", "k", "l"):
            "crun-store get: unexpected argument 'l'; try 'crun-store get --help'",
        ("get", "--fast", "h:1", "k"):
            "crun-store get: unknown option '--fast'; try 'crun-store get --help'",
        ("get", "--timeout", "soon", "h:1", "k"):
            "crun-store get: cannot use 'soon' for --timeout: give seconds, such as 2.5; try "
            "'crun-store get --help'",
        ("wait", "--timeout=-1", "h:1", "k"):
            "crun-store wait: cannot use '-1' for --timeout: give seconds, such as 2.5; try "
            "'crun-store wait --help'",
        ("add", "h:1", "k", "1.5"): "crun-store add: '1.5' is not a whole number of 64 bits; try "
                                    "'crun-store add --help'",
    }
    for words, text in usage.items():
        assert fails(*words, status=2) == text, words
    for name in ("get", "set", "add", "wait", "keys", "delete", "stat", "ping"):
        out, err = run(name, "--help")
        assert out.startswith(f"Usage: crun-store {name} ".encode()) and err == "", (out, err)


def test_an_answer_that_cannot_be_written(tmp):
    with Server() as server, open("/dev/full", "w") as full:
        at = f"127.0.0.1:{server.port}"
        run("set", at, "k", "v")
        for words in (["get", at, "k"], ["keys", at], ["--help"], ["--version"], ["get", "--help"]):
            done = subprocess.run([CRUN_STORE, *words], stdout=full, stderr=subprocess.PIPE,
                                  text=True, timeout=TIMEOUT_S)
            assert done.returncode == 1, words
            assert done.stderr == "crun-store: cannot write to stdout: No space left on device\n", \
                done


def test_nobody_there(tmp):
    with socket.socket() as held:  # bound but not listening: connections are refused
        held.bind(("127.0.0.1", 0))
        at = f"127.0.0.1:{held.getsockname()[1]}"
        # the default, but asked for
        assert "timed out after 5000 ms" in fails("ping", "--timeout", "5", at)
        assert fails("get", "--timeout", "0.3", at, "k") == \
            f"crun-store get: connect to the store at {at}: timed out after 300 ms (Connection " \
            "refused); is it running there?"
        assert fails("stat", at) == \
            f"crun-store stat: connect to {at}: Connection refused; is it running there?"


def test_stat_of_another_server(tmp):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        at = f"127.0.0.1:{listener.getsockname()[1]}"
        thread = threading.Thread(target=lambda: listener.accept()[0].close())
        thread.start()
        assert fails("stat", at) == f"crun-store stat: the store at {at} gave no " \
                                    "statistics: it closed the connection; only crun's own " \
                                    "stores have them"
        thread.join()


if __name__ == "__main__":
    run_tests(globals())
