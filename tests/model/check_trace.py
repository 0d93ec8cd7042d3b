#!/usr/bin/env python3
"""Checks logs of the program against the transition relation of the model.

    check_trace.py LOG…          logs of crun with LOGLEVEL=debug, or `sim_rendezvous --verbose`

The relation is read from rendezvous.pml: each MEMBER(n, FROM, TO), PHASE(h, FROM, TO) and
SEAT(h, n, FROM, TO) is a transition that the model allows. A transition in a log that the model
does not have is an error: either the program does what the model forbids, or the model is out of
date. Prints how many transitions were checked, and how many different ones of the model were
seen.
"""
import pathlib
import re
import sys

MODEL = pathlib.Path(__file__).resolve().parent / "rendezvous.pml"
ENTRY = re.compile(r"\b(MEMBER|PHASE|SEAT)\(([^()]*)\)")
LINES = (("MEMBER", re.compile(r"\bmember: ([A-Z]+) -> ([A-Z]+) \(")),
         ("SEAT", re.compile(r"\bjob '[^']*': node .*: ([A-Z]+) -> ([A-Z]+)$")),
         ("PHASE", re.compile(r"\bjob '[^']*': ([A-Z]+) -> ([A-Z]+) \(")))
# What the model leaves out, and why; README.md has more.
OUTSIDE = {
    ("PHASE", "RUNNING", "ENDED"), ("PHASE", "FORMING", "ENDED"),  # the model's jobs do not end
    ("PHASE", "FORMING", "EMPTY"), ("PHASE", "RUNNING", "EMPTY"),  # it has no empty jobs
    ("PHASE", "EMPTY", "ENDED"),
    # a node that has failed and has no connection passes through STOPPING in the model
    ("MEMBER", "FAILED", "CONNECTING"),
    ("SEAT", "RUNNING", "LEAVING"), ("SEAT", "JOINED", "LEAVING"),  # a leaving node is lost there
    ("SEAT", "STOPPING", "LEAVING"), ("SEAT", "RUNNING", "SUCCEEDED"),  # and success is not sent
}


# In the model, a node that is not fit or is set aside waits as one that has joined does.
WAITS = {"UNFIT": "JOINED", "ASIDE": "JOINED"}


def in_the_model(step):
    """Returns the step in the model's states. None if it changes nothing there."""
    kind, old, new = step
    if kind != "SEAT" or new == "RUNNING":  # a node that waits like this gets no place in a round
        return step
    step = (kind, WAITS.get(old, old), WAITS.get(new, new))
    return step if step[1] != step[2] or old == new else None


def relation(text):
    found = set()
    for kind, inside in ENTRY.findall(text):
        words = [w.strip() for w in inside.split(",")]
        if words[-1].isupper() and words[-2].isupper():
            found.add((kind, words[-2], words[-1]))
    # an end of the job that the coordinator sends takes the model's way through LEAVING
    found |= {("MEMBER", a, "ENDED") for k, a, _ in set(found) if k == "MEMBER"}
    return found


def transitions(lines):
    for number, line in enumerate(lines, 1):
        for kind, pattern in LINES:
            hit = pattern.search(line.rstrip())
            if hit:
                step = in_the_model((kind, hit.group(1), hit.group(2)))
                if step is not None:
                    yield number, step, line.rstrip()
                break


def check(lines, allowed):
    """Returns (number of transitions, set of those seen, list of errors)."""
    count, seen, errors = 0, set(), []
    for number, step, line in transitions(lines):
        count += 1
        if step in allowed:
            seen.add(step)
        elif step not in OUTSIDE:
            name = f"{step[0]} {step[1]} -> {step[2]}"
            errors.append(f"line {number}: the model has no {name}: {line}")
    return count, seen, errors


def main():
    allowed = relation(MODEL.read_text())
    failed, total, seen = False, 0, set()
    for path in sys.argv[1:]:
        with open(path, errors="replace") as log:
            count, some, errors = check(log, allowed)
        total += count
        seen |= some
        failed |= bool(errors)
        for error in errors[:20]:
            print(f"{path}: {error}")
    print(f"{total} transitions, {len(seen)} different ones of the model's {len(allowed)}")
    sys.exit(1 if failed or total == 0 else 0)


if __name__ == "__main__":
    main()
