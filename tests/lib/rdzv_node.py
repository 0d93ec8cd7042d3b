"""Drives tests/nodes/rdzv_node: a node without workers.

    with Cast() as cast:
        a = cast.node("c10d", endpoint, "max_nodes=2")
        a.expect("round", lambda m: m["of"] == 2); a.tell("fail"); a.expect("end")
"""
import queue
import re
import subprocess
import threading
import time

from crun_test import BUILD, TIMEOUT_S, clean_env, kill

PROGRAM = BUILD / "tests" / "nodes" / "rdzv_node"
ROUND = re.compile(r"round (?P<round>\d+) restart (?P<restart>\d+) "
                   r"group (?P<group>\d+) of (?P<groups>\d+) "
                   r"rank (?P<rank>\d+) of (?P<world>\d+) role (?P<role>\d+) of (?P<roles>\d+) "
                   r"store (?P<addr>\S+) (?P<port>\d+)")


class Node:
    def __init__(self, argv, prefix):
        self.argv = argv
        self.process = subprocess.Popen([*prefix, *map(str, argv)], stdin=subprocess.PIPE,
                                        text=True,
                                        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, bufsize=1,
                                        env=clean_env(LOGLEVEL="info"))
        self.lines, self.story = queue.Queue(), []
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        for text in self.process.stdout:
            self.story.append(f"{time.monotonic():.3f} {text.rstrip()}")
            if text.startswith(("round ", "stop ", "end ", "rdzv_node: ")):
                self.lines.put(text.rstrip())
        self.lines.put(None)

    def tell(self, command):
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()

    def signal(self, number):
        self.process.send_signal(number)

    def next(self, timeout=TIMEOUT_S):
        try:
            return self.lines.get(timeout=timeout)
        except queue.Empty:
            raise AssertionError(f"nothing heard from {self.argv}") from None

    def expect(self, kind, timeout=TIMEOUT_S):
        """Reads the next line, which must be of this kind. Returns the round as a dictionary, or,
        for any other kind, the text behind the kind."""
        text = self.next(timeout)
        assert text is not None and text.startswith(kind + " "), (kind, text)
        if kind != "round":
            return text[len(kind) + 1:]
        return {k: v if k == "addr" else int(v) for k, v in ROUND.match(text).groupdict().items()}

    def until_round(self, wanted, timeout=TIMEOUT_S):
        """Skips lines until a round for which wanted(round) holds."""
        deadline = time.monotonic() + timeout
        while True:
            text = self.next(max(0.01, deadline - time.monotonic()))
            assert text is not None and not text.startswith("end"), text
            found = ROUND.match(text)
            if found:
                m = {k: v if k == "addr" else int(v) for k, v in found.groupdict().items()}
                if wanted(m):
                    return m

    def wait(self):
        return self.process.wait(TIMEOUT_S)


class Cast:
    def __init__(self):
        self.nodes = []

    def node(self, *argv, prefix=()):
        self.nodes.append(Node([PROGRAM, *argv], prefix))
        return self.nodes[-1]

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        for n in self.nodes:
            kill(n.process)
        if kind is not None:
            for n in self.nodes:
                print("---", *n.argv[1:], f"exit {n.process.returncode}", *n.story, sep="\n  ")


def go_on(nodes, after, groups=None):
    """Waits until these nodes are in one round after the round `after`, which has `groups` nodes
    (default: only these). A lost node costs no restart. Returns their events of the round."""
    found = [n.until_round(lambda m: m["round"] > after and m["groups"] == (groups or len(nodes)))
             for n in nodes]
    assert len({(m["round"], m["addr"], m["port"]) for m in found}) == 1, found
    assert {m["restart"] for m in found} == {0}, found
    return found


def end_well(nodes):
    for n in nodes:
        n.tell("succeed")
    for n in nodes:
        assert n.expect("end").startswith("0"), n.story
        assert n.wait() == 0
