#!/usr/bin/env python3
"""Holds the rooms to their arrows: who may include whom.

    launcher -> agent -> rendezvous -> store -> base
    worker_runtime -> store -> base

A room sees another one through its front door, and private headers (*_internal.h) stay at home. The
pure cores include no libuv and no socket header."""
import pathlib
import re
import sys

MAY_SEE = {
    "base": set(),
    "store": {"base"},
    "rendezvous": {"store", "base"},
    "contract": {"base"},
    "agent": {"contract", "rendezvous", "store", "base"},
    "launcher": {"agent", "rendezvous", "base"},
    "worker_runtime": {"contract", "store", "base"},
    "examples": {"worker_runtime"},
}
# Decisions without I/O; a simulator and the fuzzers drive them.
PURE = ["store/wire/wire.c", "store/keyspace/keyspace.c",
        "rendezvous/protocol/message.c", "rendezvous/coordinator/coordinator.c",
        "rendezvous/member/member.c", "rendezvous/coordinator/assignment.c",
        "agent/node/node.c", "agent/node/worker_group.c", "agent/node/worker_page.c",
        "agent/environment.c", "agent/report/verdict.c"]
IMPURE_HEADER = re.compile(r"<(uv|sys/socket|sys/epoll|netdb|pthread|unistd|fcntl)\.h>")
IMPURE_CALL = re.compile(r"\b(time|clock_gettime|gettimeofday|cr_now_ms|cr_clock_\w+|getenv|rand|random)\(")

# Calls with a better neighbour: bounded copies, strict number parsing, waiting for an event.
BANNED = re.compile(r"\b(strcat|sprintf|vsprintf|gets|strtok|atoi|atol|atof|system|popen|alloca"
                    r"|usleep|sleep)\(")
# Only main exits and prints.
MAINS = ("launcher/crun.c", "base/program.c", "store/command/",
         "agent/crun_agent.c", "base/assert.h",
         "worker_runtime/mpi/")  # the standard's default: an error ends the program
LOUD = re.compile(r"\b(exit|printf|puts|putchar|perror)\(|\bf(printf|puts)\((stdout|stderr)")

# libcrunrt lives in other people's processes.
FORBIDDEN = {"worker_runtime": re.compile(r"<(uv|jansson)\.h>"),
             "base": re.compile(r"<(uv|jansson)\.h>")}

problems = []
for room, visible in MAY_SEE.items():
    for path in sorted(pathlib.Path(room).rglob("*.[ch]*")):
        if path.suffix not in (".c", ".h", ".cc"):
            continue
        for number, line in enumerate(path.read_text().splitlines(), 1):
            code = re.sub(r'"(\\.|[^"\\])*"|//.*|/\*.*?(\*/|$)', '""', line)
            if re.match(r"\s*\*", code):
                code = ""  # inside a comment
            if BANNED.search(code):
                problems.append(f"{path}:{number}: banned call {BANNED.search(code).group(1)}()")
            if str(path) in PURE and IMPURE_CALL.search(code):
                problems.append(f"{path}:{number}: a pure core calls {IMPURE_CALL.search(code).group(1)}()")
            if room != "examples" and not str(path).startswith(MAINS) and LOUD.search(code):
                problems.append(f"{path}:{number}: a library prints or exits: {line.strip()}")
            ours = re.match(r'\s*#\s*include\s*"([a-z_]+)/([^"]+)"', line)
            if ours and ours.group(1) in MAY_SEE and ours.group(1) != room:
                if ours.group(1) not in visible:
                    problems.append(f"{path}:{number}: {room}/ must not know {ours.group(1)}/")
                elif ours.group(2).endswith("_internal.h"):
                    problems.append(f"{path}:{number}: {ours.group(2)} is private to {ours.group(1)}/")
            if room in FORBIDDEN and FORBIDDEN[room].search(line) and "include" in line:
                problems.append(f"{path}:{number}: {room}/ must not need {line.split()[-1]}")
            if str(path) in PURE and "include" in line and IMPURE_HEADER.search(line):
                problems.append(f"{path}:{number}: a pure core includes {line.split()[-1]}")
for name in PURE:
    if not pathlib.Path(name).exists():
        problems.append(f"{name}: listed as pure, but not there")

print("\n".join(problems) if problems else "the arrows hold")
sys.exit(1 if problems else 0)
