#!/usr/bin/env python3
"""Lets the model of the succession take the steps of traces of the program.

    check_succession.py TRACE

TRACE is what `sim_rendezvous --trace TRACE` writes: the steps of the shipping coordinators, members
and sessions in simulated jobs with heirs. For each trace, Spin executes succession.pml with a
process that takes the steps of the trace in place of those that take any step. A step that the
model does not allow at that moment is an error, and so is a round that forms while the model says
that the coordinator may not decide, or that another one may. Prints how many steps were taken.
"""
import collections
import pathlib
import re
import subprocess
import sys
import tempfile

MODEL = pathlib.Path(__file__).resolve().parent / "succession.pml"

# The condition and the effect of each step in the words of the model; a and b are the two numbers
# of the step in the trace.
STEPS = {
    "lose": ("true", "lose(b)"),  # a node that follows another coordinator has lost its own before
    "release": ("!HAS(held[a], b) || MAY_RELEASE(a, b)", "release(a, b)"),
    "join": ("(link[b] == NOBODY && serves[a] && MAY_JOIN(a, b) || "
             "link[b] == a && MAY_HOLD_AGAIN(b))", "join(a, b)"),
    "serve": ("MAY_SERVE(b)", "serve(b)"),
    "form": ("MAY_FORM(a, b)", "form(a, b)"),
    "hear": ("(coming[a] == b || MAY_SEND_AGAIN(a) && now[link[a]] == b)",
             "coming[a] = b; hear(a)"),
    "settle": ("MAY_SETTLE(b)", "settled[b] = true"),
}


def program(steps, nodes, rounds):
    """Returns the model with a process that takes these steps. A beat that says nothing new to its
    coordinator is no step of the model, so it is left out where the model does not allow it."""
    cases = [f"    :: atomic {{ steps ? {name.upper()}, a, b -> at++; assert({may}); {does} }}"
             for name, (may, does) in STEPS.items()]
    cases.append("    :: atomic { steps ? BEAT, a, b -> at++;\n"
                 "        if :: MAY_BEAT(b) -> name(link[b], b); weigh(link[b]) :: else fi }")
    sends = "\n".join(f"    steps ! {name.upper()}, {a}, {b};" for name, a, b in steps)
    names = ", ".join(name.upper() for name in [*STEPS, "beat"])
    return "\n".join([
        f"#define TRACE\n#define NODES {nodes}\n#define LAST {rounds + 1}",
        f"mtype = {{ {names} }};", "chan steps = [0] of { mtype, byte, byte };", "short at;",
        f'#include "{MODEL}"', "proctype Trace() {", sends, "    skip\n}",
        "proctype Follower() {\n    byte a, b;\nend:\n    do", *cases, "    od\n}"])


def follow(steps, nodes):
    """Returns the number of the step that the model does not allow, from 1; 0 if it allows all."""
    rounds = 1 + sum(name == "form" for name, _, _ in steps)
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "trace.pml"
        path.write_text(program(steps, nodes, rounds))
        done = subprocess.run(["spin", "-T", "-g", path], cwd=folder, capture_output=True,
                              text=True)
    text = done.stdout + done.stderr
    taken = re.findall(r"^\t\tat = (\d+)", text, re.M)
    if not taken:
        raise RuntimeError(f"spin has failed: {text[-2000:]}")
    is_end = "assertion violated" not in text and int(taken[-1]) == len(steps)
    return 0 if is_end else int(taken[-1])


def read(path):
    """Yields (seed, number of nodes, steps) of each trace in the file."""
    steps = None
    for line in pathlib.Path(path).read_text().splitlines():
        name, *rest = line.split()
        if name == "begin":
            nodes, seed, steps = int(rest[0]), rest[1], []
        elif name == "end":
            yield seed, nodes, steps
        else:
            steps.append((name, int(rest[0]), int(rest[1])))


def main():
    taken, failed = collections.Counter(), 0
    for seed, nodes, steps in read(sys.argv[1]):
        wrong = follow(steps, nodes)
        taken.update(name for name, _, _ in steps[:wrong or None])
        if wrong:
            failed += 1
            name, a, b = steps[wrong - 1]
            print(f"seed {seed}: step {wrong}, {name} {a} {b}, is not allowed by the model")
    counts = ", ".join(f"{n} {name}" for name, n in sorted(taken.items()))
    print(f"{taken.total()} steps: {counts}")
    sys.exit(1 if failed or taken["form"] == 0 else 0)


if __name__ == "__main__":
    main()
