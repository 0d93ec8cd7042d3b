#!/usr/bin/env python3
"""Checks that the source keeps to the layout that the tables below describe.

A room is a top-level folder, a chamber a folder in it. Code outside of a chamber includes only its
door; code outside of a room includes only the room's faces. Arrows (who includes whom) are exactly
those of the table, and there is no circle: neither between chambers nor between the files of one
chamber. Pure files reach no header that could do I/O. docs/architecture.md explains why.

    make/lint_arrows.py [FOLDER]         report what is wrong, one line each (default: this folder)
    make/lint_arrows.py --document       write the picture of the rooms and the list of arrows into
                                         docs/architecture.md
"""
import os
import pathlib
import re
import shlex
import subprocess
import sys

# ---- the table: keep it in step with the tree ----

# What other rooms may include of a room. "*": every header. All chambers of a room may include its
# faces; a face is therefore a node of its own in the picture, beside the other files of its folder.
FACES = {
    "base": "*",
    "contract": ["channel.h", "packet.h", "progress.h"],
    "store": ["store.h", "wire/wire.h"],
    "rendezvous": ["http/http.h", "relay/relay.h", "rendezvous.h", "secure/secure.h", "server.h",
                   "store_guard.h", "types.h"],
    "remote": ["remote.h"],
    "inspect": ["inspect.h", "inspector.h"],
    "status": ["attach.h", "json_text.h", "snapshot.h", "status.h", "view.h"],
    "agent": ["agent.h", "agent_job.h", "evidence/xid_program.h", "health/health.h",
              "output/console.h", "watchdog/log_rules.h"],
    "launcher": [],
    "operator": [],
    "worker_runtime": ["include/crunrt.h"],
    "examples": [],
}

# Chamber: its door, and what it may see besides base/ and the faces of its own room: chambers of
# its room, and other rooms through their faces. A room's own folder is a chamber without a door.
CHAMBERS = {
    # Every room may include base/ and the folders in it.
    "base": (None, []),
    "base/text": (None, []),
    "base/time": (None, []),
    "base/log": (None, ["base/text", "base/time"]),
    "base/files": (None, ["base/text"]),
    "base/process": (None, ["base/files", "base/log"]),
    "base/network": (None, ["base/text", "base/time"]),
    "base/program": (None, ["base/text"]),
    "contract": (None, []),

    "store": (None, ["store/bytes", "store/client", "store/gateway", "store/server"]),
    "store/bytes": ("bytes.h", []),
    "store/wire": ("wire.h", ["store/bytes"]),
    "store/keyspace": ("keyspace.h", []),
    "store/gateway": ("gateway.h", ["store/keyspace"]),
    "store/server": ("server.h", ["store/bytes", "store/gateway", "store/keyspace"]),
    "store/client": ("client.h", ["store/bytes"]),
    "store/command": (None, []),

    "rendezvous": (None, ["rendezvous/coordinator", "rendezvous/dial", "rendezvous/host",
                          "rendezvous/member", "rendezvous/protocol", "rendezvous/way"]),
    "rendezvous/protocol": ("protocol.h", []),
    "rendezvous/secure": ("secure.h", []),
    "rendezvous/http": ("http.h", []),
    "rendezvous/relay": ("relay.h", ["rendezvous/dial", "rendezvous/protocol"]),
    "rendezvous/rules": ("rules.h", []),
    "rendezvous/coordinator": ("coordinator.h", ["inspect", "rendezvous/protocol",
                                                 "rendezvous/rules"]),
    "rendezvous/member": ("member.h", ["rendezvous/protocol"]),
    "rendezvous/host": ("host.h", ["rendezvous/coordinator", "rendezvous/protocol",
                                   "rendezvous/rules", "store"]),
    "rendezvous/dial": ("dial.h", ["rendezvous/protocol", "store"]),
    "rendezvous/etcd": ("etcd.h", ["rendezvous/dial"]),
    "rendezvous/way": ("way.h", ["rendezvous/dial", "rendezvous/etcd", "rendezvous/host",
                                 "rendezvous/protocol", "store"]),

    "remote": (None, ["rendezvous"]),

    "inspect": (None, ["store"]),

    "status": (None, ["contract", "rendezvous"]),

    "agent": (None, ["agent/attempt", "agent/channel", "agent/inspection", "agent/node",
                     "agent/output", "agent/process", "agent/record", "agent/report",
                     "agent/trainjob", "agent/watchdog", "rendezvous", "status"]),
    "agent/attempt": ("attempt.h", ["agent/channel", "agent/node", "agent/output", "agent/process",
                                    "agent/record", "agent/report", "contract"]),
    "agent/channel": ("worker_channel.h", ["agent/node", "agent/process", "contract"]),
    "agent/inspection": ("inspection.h", ["agent/watchdog", "inspect", "rendezvous"]),
    "agent/record": ("record.h", ["agent/channel", "agent/evidence", "agent/output",
                                  "agent/process", "agent/report", "agent/verdict",
                                  "status"]),
    "agent/node": ("node.h", ["contract", "rendezvous"]),
    "agent/health": ("health.h", ["rendezvous"]),
    "agent/system": ("system.h", []),
    "agent/process": ("nursery.h", ["agent/system"]),
    "agent/output": ("log_relay.h", ["agent/system"]),
    "agent/evidence": ("evidence.h", []),
    "agent/verdict": ("verdict.h", ["agent/evidence", "rendezvous", "status"]),
    "agent/report": ("report.h", ["agent/process", "rendezvous", "status"]),
    "agent/trainjob": ("trainjob.h", ["rendezvous"]),
    "agent/watchdog": ("watchdog.h", []),

    "launcher": (None, ["agent", "inspect", "launcher/devices", "launcher/frameworks",
                        "launcher/hosts", "launcher/jobset",
                        "launcher/keeper", "launcher/options", "launcher/pmi",
                        "launcher/scheduler", "remote"]),
    "launcher/frameworks": ("frameworks.h", ["store"]),
    "launcher/keeper": ("keeper.h", []),
    "launcher/options": ("options.h", ["launcher/hosts", "launcher/scheduler", "rendezvous"]),
    "launcher/devices": ("devices.h", []),
    "launcher/jobset": ("jobset.h", ["rendezvous"]),
    "launcher/pmi": ("pmi.h", ["store"]),
    "launcher/hosts": ("hosts.h", ["agent"]),
    "launcher/scheduler": ("scheduler.h", []),
    "operator": (None, ["inspect", "remote", "rendezvous", "status"]),

    "worker_runtime/include": (None, []),
    "worker_runtime/report": ("report.h", []),
    "worker_runtime/channel": ("channel.h", ["contract", "worker_runtime/report"]),
    "worker_runtime/store": ("store.h", ["store", "worker_runtime/report"]),
    "worker_runtime/backends": ("backend.h", []),
    "worker_runtime/backends/reduce": ("reduce.h", []),
    "worker_runtime/backends/gloo": (None, ["worker_runtime/backends",
                                            "worker_runtime/backends/reduce"]),
    "worker_runtime/backends/nccl": (None, ["worker_runtime/backends"]),
    "worker_runtime/backends/mpi": (None, ["worker_runtime/backends",
                                           "worker_runtime/backends/reduce"]),
    "worker_runtime/modules": ("modules.h", []),
    "worker_runtime/host": ("store_host.h", ["store"]),
    "worker_runtime/group": (None, ["contract", "worker_runtime/backends", "worker_runtime/modules",
                                    "worker_runtime/report", "worker_runtime/runtime"]),
    "worker_runtime/runtime": ("runtime.h", ["contract", "worker_runtime/channel",
                                             "worker_runtime/host", "worker_runtime/modules",
                                             "worker_runtime/report", "worker_runtime/store"]),
    "worker_runtime/mpi": (None, []),
    "worker_runtime/torch": (None, []),

    "examples": (None, ["worker_runtime"]),
    "examples/cuda": (None, ["worker_runtime"]),
}

# Files that decide and do no I/O: the simulator, the fuzzers and unit tests run them anywhere.
# Neither they nor any header that they reach may include one of these.
IMPURE_HEADERS = ["uv.h", "sys/socket.h", "sys/epoll.h", "netdb.h", "pthread.h", "unistd.h",
                  "fcntl.h", "jansson.h"]
PURE = [
    "base/buffer.c", "base/program/command_line.c", "base/error.c", "base/text/parse.c",
    "base/network/port_range.c", "base/program/program_text.c", "base/time/suspension.c",
    "base/time/standstill.c",
    "base/text/template.c", "base/text/text.c", "base/time/waiting.c", "base/log/trace.c",
    "store/bytes/list.c", "store/wire/operation.c", "store/wire/parser.c", "store/wire/encoder.c",
    "store/wire/answer.c", "store/wire/call_text.c",
    "store/keyspace/keyspace.c", "store/keyspace/entry.c", "store/keyspace/write.c",
    "store/keyspace/wait.c", "store/keyspace/watch.c", "store/keyspace/counter.c",
    "store/keyspace/listing.c", "store/keyspace/look_ahead.c", "store/keyspace/remains.c",
    "store/keyspace/key_table.c", "store/keyspace/output.c", "store/client/probe.c",
    "store/gateway/gate.c", "store/gateway/gateway.c", "store/gateway/greeting.c",
    "store/gateway/trunk.c",
    "rendezvous/protocol/message.c", "rendezvous/protocol/host_session.c",
    "rendezvous/protocol/trunk.c", "rendezvous/relay/core.c", "rendezvous/host/trunk_end.c",
    "rendezvous/host/job_table.c",
    "rendezvous/protocol/member_session.c", "rendezvous/rules/assignment.c",
    "rendezvous/coordinator/coordinator.c", "rendezvous/member/member.c",
    "rendezvous/rules/behind.c", "rendezvous/rules/budget.c", "rendezvous/coordinator/change.c",
    "rendezvous/coordinator/charge.c", "rendezvous/coordinator/incarnation.c",
    "rendezvous/coordinator/forming.c", "rendezvous/coordinator/hang.c",
    "rendezvous/coordinator/pairs.c", "rendezvous/rules/pairs.c",
    "rendezvous/coordinator/joining.c",
    "rendezvous/coordinator/limits.c", "rendezvous/coordinator/seats.c",
    "rendezvous/coordinator/seat_table.c", "rendezvous/coordinator/settings.c",
    "rendezvous/coordinator/view.c", "rendezvous/coordinator/waiting.c",
    "rendezvous/rules/electorate.c", "rendezvous/rules/leading.c",
    "rendezvous/coordinator/resuming.c",
    "rendezvous/rules/standing.c", "rendezvous/coordinator/aside.c",
    "rendezvous/coordinator/succession.c", "rendezvous/member/resuming.c",
    "rendezvous/member/succession.c", "rendezvous/protocol/heirs.c",
    "rendezvous/member/connecting.c", "rendezvous/member/keep_alive.c",
    "rendezvous/secure/tunnel.c", "rendezvous/secure/keys.c", "rendezvous/secure/noise.c",
    "rendezvous/secure/primitives.c",
    "rendezvous/etcd/answer.c", "rendezvous/etcd/election.c",
    "rendezvous/etcd/fields.c", "rendezvous/dial/race.c", "rendezvous/dial/stranger.c",
    "rendezvous/way/signpost_value.c",
    "remote/message.c",
    "inspect/fold.c", "inspect/report.c", "inspect/row.c",
    "agent/node/node.c", "agent/node/worker_group.c", "agent/node/worker_page.c",
    "agent/health/judge.c", "agent/health/nvhcd.c",
    "agent/attempt/environment.c", "agent/attempt/role.c",
    "agent/output/line_splitter.c", "agent/output/fold.c", "agent/output/last_bytes.c",
    "agent/verdict/failures.c",
    "agent/evidence/last_lines.c", "agent/report/ledger.c", "agent/report/ledger_text.c",
    "agent/verdict/order.c", "agent/verdict/text.c", "agent/verdict/report.c",
    "agent/verdict/box.c", "agent/evidence/error_record.c",
    "agent/trainjob/status.c",
    "agent/watchdog/log_rules.c",
    "agent/watchdog/quiet.c", "agent/watchdog/timers.c", "agent/watchdog/timer_request.c",
    "status/judge.c", "status/metrics.c", "status/view.c",
    "contract/packet.c", "contract/progress.c",
    "worker_runtime/channel/packet.c", "worker_runtime/group/op_check.c",
    "worker_runtime/runtime/worker_place.c",
    "launcher/devices/numa_binding.c", "launcher/options/table.c", "launcher/options/values.c",
    "launcher/options/programs.c",
    "launcher/options/hosts_options.c", "launcher/hosts/entries.c", "launcher/hosts/lead.c",
    "launcher/hosts/lines.c", "launcher/hosts/message.c", "launcher/hosts/tree.c",
    "launcher/hosts/way.c", "launcher/frameworks/tf_config.c",
    "launcher/jobset/protocol.c", "launcher/pmi/elf.c", "launcher/pmi/request.c",
    "launcher/options/scheduler_options.c", "launcher/scheduler/scheduler.c",
    "launcher/scheduler/variables.c", "launcher/scheduler/host_list.c",
    "launcher/scheduler/slurm.c", "launcher/scheduler/mpi.c", "launcher/scheduler/batch.c",
    "launcher/scheduler/cloud.c", "launcher/scheduler/kubernetes.c",
]
MAY_REACH = {  # they parse JSON and do no I/O
    "inspect/row.c": {"jansson.h"},
    "agent/health/nvhcd.c": {"jansson.h"},
    "status/judge.c": {"jansson.h"}, "status/metrics.c": {"jansson.h"},
    "status/view.c": {"jansson.h"},
    "agent/evidence/error_record.c": {"jansson.h"},
    "agent/watchdog/timer_request.c": {"jansson.h"},
    "launcher/jobset/protocol.c": {"jansson.h"},
    "rendezvous/etcd/answer.c": {"jansson.h"}, "rendezvous/etcd/fields.c": {"jansson.h"},
}
IMPURE_CALL = re.compile(r"\b(time|clock_gettime|gettimeofday|cr_\w*now\w*|cr_monotonic_\w+"
                         r"|cr_wall_\w+|getenv|rand|random|getrandom)\(")

# Includes that break the rule of the one door. Each is to go; none is to be added.
EXCEPTIONS = set()

# Headers that a room must do without. libcrunrt lives in other people's processes.
NOT_IN_ROOM = {"worker_runtime": {"uv.h", "jansson.h"}, "base": {"uv.h", "jansson.h"},
               "contract": {"uv.h", "jansson.h"}}

# Calls with a better neighbour: bounded copies, strict number parsing, waiting for an event.
BANNED_CALL = re.compile(
    r"\b(strcat|sprintf|vsprintf|gets|strtok|atoi|atol|atof|system|popen|alloca)\(")
SLEEP = re.compile(r"\b(u?sleep|nanosleep|clock_nanosleep|sleep_for|p?poll\(\s*NULL\s*,|"
                   r"p?select\(\s*0\s*,)")

# Who may sleep, because nothing could wake it: there is no event to wait for.
MAY_SLEEP = {
    "store/client/connect.c": "between two attempts to reach a server that is not there yet",
    "store/client/file_log.c": "while another process holds the lock; flock(2) has no deadline",
    "agent/system/warden.c": "the agent is dead; between two looks for processes that it left",
    "worker_runtime/backends/mpi/mpi_wait.c": "MPI has no event for a request that is done",
    "worker_runtime/backends/nccl/nccl_wait.c": "NCCL has no event for a communicator",
    "examples/elastic.c": "plays a training step that takes time",
}

# Only what is part of a program prints or exits.
MAY_PRINT = ("launcher/crun.c", "launcher/keeper/client.c", "agent/health/program.c",
             "base/program/program.c", "base/assert.h", "store/command/", "operator/", "examples/",
             "worker_runtime/mpi/")  # MPI's default: an error ends the program
LOUD = re.compile(r"\b(exit|printf|puts|putchar|perror)\(|\bf(printf|puts)\((stdout|stderr)")

LINE_WIDTH = 100
HAS_WIDTH = ("*.c", "*.h", "*.cc", "*.py", "*.sh", "*.mk", "Makefile")
# Rooms whose lines are still being brought within LINE_WIDTH, and whose files are still to get an
# opening comment.
NOT_YET = ()

# Rooms whose README.md has a table of contents, with one row for each header: | `name.h` | text |
CONTENTS = ("base",)

# ---- reading the source ----


INCLUDE = re.compile(r'\s*#\s*include\s*(?:"([^"]+)"|<([^>]+)>)')
NO_CODE = re.compile(r'"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\'|//[^\n]*|/\*.*?\*/', re.S)


class File:
    """A source file: its text without comments and strings, and what it includes."""

    def __init__(self, path):
        self.path = str(path)
        self.text = path.read_text()
        self.folder = str(path.parent)
        self.room = path.parts[0]
        self.ours, self.others = [], []  # (line number, header): "room/x.h", <x.h>
        for number, line in enumerate(self.text.splitlines(), 1):
            found = INCLUDE.match(line)
            if found and found.group(2) == "crunrt.h":
                self.ours.append((number, "worker_runtime/include/crunrt.h"))
            elif found:
                (self.ours if found.group(1) else self.others).append(
                    (number, found.group(1) or found.group(2)))
        blank = lambda m: '""' + "\n" * m.group(0).count("\n")
        self.code = NO_CODE.sub(blank, self.text)

    def line_of(self, position):
        return self.code.count("\n", 0, position) + 1


def is_face(header):
    room, _, name = header.partition("/")
    return FACES.get(room) == "*" or name in FACES.get(room, [])


def node_of(header):
    """What an arrow to this header points at: a chamber, or the faces of a room."""
    room, folder = header.split("/")[0], str(pathlib.PurePath(header).parent)
    return room if is_face(header) and FACES[room] != "*" else folder


def is_base(node):
    return node.split("/")[0] == "base"


# ---- the rules; each yields "path:line: what is wrong" ----


def check_folders(files):
    for room, faces in FACES.items():
        for face in faces if faces != "*" else []:
            if not pathlib.Path(room, face).exists():
                yield f"{room}/{face}: in the table of faces, but there is no such header"
    for folder in sorted({f.folder for f in files}):
        if folder not in CHAMBERS:
            yield f"{folder}/: not in the table of chambers (make/lint_arrows.py)"
    for folder in CHAMBERS:
        if not any(f.folder == folder for f in files):
            yield f"{folder}/: in the table of chambers, but there is no such folder"


def check_include(file, number, header):
    target, where = node_of(header), f"{file.path}:{number}"
    room = header.split("/")[0]
    if target in (file.folder, file.room) or file.folder not in CHAMBERS:
        return
    if is_base(target) and file.room != "base":
        return
    if room != file.room and not is_face(header):
        yield f"{where}: {header} is private to {room}/"
    elif not is_face(header) and target != header.split("/")[0] and \
            str(pathlib.PurePath(header).name) != CHAMBERS.get(target, (None,))[0]:
        if (file.path, header) not in EXCEPTIONS:
            yield f"{where}: {header} is not the door of {target}/"
    elif target not in CHAMBERS[file.folder][1]:
        yield f"{where}: {file.folder}/ may not see {target}/"


def check_includes(files):
    for file in files:
        for number, header in file.ours:
            yield from check_include(file, number, header)
        for number, header in file.others:
            if header in NOT_IN_ROOM.get(file.room, ()):
                yield f"{file.path}:{number}: {file.room}/ must not need <{header}>"


def check_arrows_are_used(files):
    used = {(f.folder, node_of(h)) for f in files for _, h in f.ours}
    for chamber, (_, sees) in CHAMBERS.items():
        for target in sees:
            if (chamber, target) not in used:
                yield f"{chamber}/: the table lets it see {target}/, which it does not include"


def find_circle(graph):
    """A list of nodes that leads back to its first one, or None. `graph`: node -> set of nodes."""
    done = set()

    def visit(node, path):
        if node in path:
            return path[path.index(node):] + [node]
        if node in done:
            return None
        for target in sorted(graph.get(node, ())):
            found = visit(target, path + [node])
            if found:
                return found
        done.add(node)
        return None

    for node in sorted(graph):
        found = visit(node, [])
        if found:
            return found
    return None


def stem_of(path):
    """A source file and its header are one node. A door is a node of its own, because it declares
    what the files of its chamber share; so is a private header without a source of its name."""
    folder, _, name = path.rpartition("/")
    if not is_base(folder) and is_face(path) or name == CHAMBERS.get(folder, (None,))[0]:
        return path
    return str(pathlib.PurePath(path).with_suffix(""))


def check_circles(files):
    between, within = {}, {}
    for file in files:
        source = file.path if is_face(file.path) and file.room != "base" else file.folder
        stem = stem_of(file.path)
        for _, header in file.ours:
            target = header if is_face(header) and not is_base(header) else node_of(header)
            if target != source:
                between.setdefault(source, set()).add(target)
            other = stem_of(header)
            if str(pathlib.PurePath(header).parent) == file.folder and other != stem:
                within.setdefault(file.folder, {}).setdefault(stem, set()).add(other)
    circle = find_circle(between)
    if circle:
        yield f"{circle[0]}: a circle of chambers: {' -> '.join(circle)}"
    for folder, graph in sorted(within.items()):
        circle = find_circle(graph)
        if circle:
            yield f"{folder}/: a circle of files: {' -> '.join(circle)}"


def reached_headers(path):
    """All headers that the compiler reads for this file; None: it cannot tell."""
    command = shlex.split(os.environ.get("CC", "cc")) + [
        "-I.", "-Iworker_runtime/include", "-D_GNU_SOURCE", "-M", path]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    return done.stdout.replace("\\\n", " ").split()[1:] if done.returncode == 0 else None


def check_reach(file, by_path):
    reached = reached_headers(file.path)
    if reached is None:
        yield f"{file.path}:1: the compiler cannot list the headers that it reaches"
        return
    ours = [by_path[p] for p in reached if p in by_path]
    for header in sorted(set(IMPURE_HEADERS) - MAY_REACH.get(file.path, set())):
        if not any(p.endswith("/" + header) and p not in by_path for p in reached):
            continue
        by = [f.path for f in ours if any(h == header for _, h in f.others)]
        # glibc's <signal.h> includes <unistd.h>; that alone is no I/O.
        if by or header != "unistd.h":
            how = f", through {by[0]}" if by and by[0] != file.path else ""
            yield f"{file.path}:1: pure, but reaches <{header}>{how}"


def check_pure(files):
    by_path = {f.path: f for f in files}
    for path in PURE:
        if path not in by_path:
            yield f"{path}: in the list of pure files, but there is no such file"
            continue
        file = by_path[path]
        yield from check_reach(file, by_path)
        for found in IMPURE_CALL.finditer(file.code):
            yield f"{path}:{file.line_of(found.start())}: pure, but calls {found.group(1)}()"


def check_exceptions(files):
    includes = {(f.path, h) for f in files for _, h in f.ours}
    for path, header in sorted(EXCEPTIONS - includes):
        yield f"{path}: does not include {header} any more: take it out of EXCEPTIONS"


def check_calls(files):
    for file in files:
        for found in BANNED_CALL.finditer(file.code):
            yield f"{file.path}:{file.line_of(found.start())}: banned call {found.group(1)}()"
        for found in SLEEP.finditer("" if file.path in MAY_SLEEP else file.code):
            yield f"{file.path}:{file.line_of(found.start())}: sleeps; wait for an event instead"
        if not file.path.startswith(MAY_PRINT):
            for found in LOUD.finditer(file.code):
                yield f"{file.path}:{file.line_of(found.start())}: a library prints or exits"


def check_openings(files):
    for file in files:
        if not file.path.startswith(NOT_YET) and not file.text.startswith(("/*", "//")):
            yield f"{file.path}:1: no comment at the top says what the file is for"


def check_contents(files):
    """The README.md of each room in CONTENTS lists exactly the headers of the room."""
    for folder in CONTENTS:
        table = pathlib.Path(folder, "README.md")
        if not table.exists():
            continue  # a tree without documents
        listed = re.findall(r"^\| `([\w/]+\.h)` \|", table.read_text(), re.M)
        has = [os.path.relpath(f.path, folder) for f in files
               if f.room == folder and f.path.endswith(".h")]
        yield from (f"{table}: {h} is not listed" for h in has if h not in listed)
        yield from (f"{table}: {h} is listed, but not there" for h in listed if h not in has)


def lined_files():
    """Yields the files whose lines have a limit of length. It never looks into build/: other tests
    make and remove folders there meanwhile."""
    for root, folders, names in os.walk("."):
        folders[:] = sorted(f for f in folders if pathlib.Path(root, f) != pathlib.Path("build"))
        for name in sorted(names):
            path = pathlib.Path(root, name)
            if any(path.match(p) for p in HAS_WIDTH) and not str(path).startswith(NOT_YET):
                yield path


def check_width():
    for path in lined_files():
        for number, line in enumerate(path.read_text().splitlines(), 1):
            if len(line) > LINE_WIDTH:
                yield f"{path}:{number}: {len(line)} columns; at most {LINE_WIDTH}"


def source_files():
    return [File(p) for room in FACES for p in sorted(pathlib.Path(room).rglob("*"))
            if p.suffix in (".c", ".h", ".cc")]


def problems():
    files = source_files()
    for check in (check_folders, check_includes, check_exceptions, check_arrows_are_used,
                  check_circles, check_pure, check_calls, check_openings, check_contents,
                  check_document):
        yield from check(files)
    yield from check_width()


# ---- the picture of the rooms and the list of arrows in docs/architecture.md ----

DOCUMENT = pathlib.Path("docs/architecture.md")
PROGRAMS = {"launcher": "crun", "operator": "crun-agent", "store": "crun-store",
            "worker_runtime": "libcrunrt"}


def arrows():
    """A table of the chambers with their doors and arrows, from the includes."""
    rows = ["| chamber | door or faces | includes |", "| --- | --- | --- |"]
    files = source_files()
    for chamber, (door, _) in CHAMBERS.items():
        own = [f for f in files if f.folder == chamber]
        if not own:
            continue
        room = own[0].room
        sees = sorted(n for n in {node_of(h) for f in own for _, h in f.ours} - {chamber, room}
                      if room == "base" or not is_base(n))
        faces = "*" if room == "base" else FACES.get(chamber, [door] if door else [])
        shown = "each header" if faces == "*" else ", ".join(f"`{f}`" for f in faces)
        rows.append(f"| `{chamber}` | {shown} | {', '.join(f'`{s}`' for s in sees)} |")
    return "\n".join(rows) + "\n"


def rooms():
    """A mermaid diagram of the rooms, with an arrow for each room that includes another one. Each
    room includes base/, so base has no arrows and stands below, by an invisible line."""
    files = source_files()
    seen = sorted({(f.room, h.split("/")[0]) for f in files for _, h in f.ours})
    between = [(a, b) for a, b in seen if a != b and b != "base"]
    names = [room for room in reversed(FACES) if room != "base"]
    lines = ["```mermaid", "flowchart TD"]
    for room in names:
        program = f"<br/>{PROGRAMS[room]}" if room in PROGRAMS else ""
        lines.append(f'    {room}["{room}/{program}"]')
    lines.append('    base["base/: each room may include it"]')
    lines += [f"    {a} --> {b}" for a, b in between]
    lowest = [room for room in names if room not in {a for a, _ in between}]
    lines += [f"    {room} ~~~ base" for room in lowest]
    return "\n".join(lines + ["```"]) + "\n"


def replaced(text, name, part):
    """The text with `part` between the two comments that mark the part `name`."""
    begin, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->\n"
    return text[:text.index(begin) + len(begin)] + part + text[text.index(end):]


def documented():
    """docs/architecture.md with the picture and the list as they should be."""
    return replaced(replaced(DOCUMENT.read_text(), "rooms", rooms()), "chambers", arrows())


def check_document(_):
    if not DOCUMENT.exists():
        return  # a tree without documents
    if documented() != DOCUMENT.read_text():
        yield (f"{DOCUMENT}: the picture of the rooms or the list of arrows is not up to date; "
               "run: make docs")


def main():
    if sys.argv[1:] == ["--document"]:
        DOCUMENT.write_text(documented())
        return 0
    if len(sys.argv) > 1:
        os.chdir(sys.argv[1])
    found = list(problems())
    for line in found:
        print(line, file=sys.stderr)
    if not found:
        print("the layout is as it should be")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
