#!/usr/bin/env python3
"""Writes the manual page crunrt(3) from the header, so that the two cannot disagree.

    make/manual.py worker_runtime/include/crunrt.h VERSION > docs/crunrt.3

The opening comment becomes the description, each "---- title ----" a section, each declaration a
paragraph: its text as in the header, then the comment above it. Indented lines of a comment are
kept as they are.
"""
import re
import sys

ENVIRONMENT = [
    ("RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT",
     "this process's place and the store's address, as crun and torchrun set them"),
    ("TORCHELASTIC_USE_AGENT_STORE", "\"True\": the launcher's agent hosts the store"),
    ("TORCHELASTIC_RESTART_COUNT", "the attempt; part of every key of the library"),
    ("TORCHELASTIC_ERROR_FILE", "where crunrt_report_error() writes"),
    ("CRUNRT_BACKEND", "the backend of groups that name none; else gloo"),
    ("CRUNRT_BACKEND_DIR", "the only folder in which backends are looked for"),
    ("CRUNRT_DEBUG", "\"1\": compare every collective with the other ranks before it begins"),
    ("CRUNRT_FLIGHT_FILE", "where flight records go: this, the rank, and \".json\""),
    ("CRUNRT_DUMP_SIGNAL",
     "the signal by which crun's agent asks for a flight record; SIGRTMIN+5; 0: none"),
    ("CRUN_AGENT", "where the worker's agent listens, as crun sets it; an address and a token"),
    ("GLOO_SOCKET_IFNAME",
     "the network interface of the gloo backend; else the one that leads to the store"),
    ("CRUNRT_NCCL_LIBRARY, CRUNRT_CUDA_LIBRARY",
     "other files than libnccl.so.2 and libcuda.so.1"),
    ("CRUNRT_RCCL_LIBRARY, CRUNRT_HIP_LIBRARY",
     "the same for the backend rccl: other files than librccl.so.1 and libamdhip64.so"),
    ("CRUNRT_NCCL_BLOCKING", "\"0\": non-blocking NCCL communicators; NCCL then makes a thread per"
     " operation"),
    ("CRUNRT_NCCL_RANKS_PER_ROOT",
     "ranks that one NCCL root serves while a communicator is made; 128"),
    ("CRUNRT_NCCL_SPLIT",
     "\"0\": every NCCL group makes a communicator of its own, none is split off"),
    ("CRUNRT_NCCL_ABORT_TIMEOUT_MS", "how long an abort may take before it is left behind; 30000"),
]


def escape(text):
    text = text.replace("\\", "\\e").replace("-", "\\-").replace("…", "...")
    return "\\&" + text if text.startswith((".", "'")) else text


def verbatim(lines):
    return [".nf", *[escape(line) if line else "" for line in lines], ".fi"]


def comment_text(comment):
    """The lines of a /* … */ comment without its frame."""
    first, *others = comment.strip()[2:-2].split("\n")
    return [first.strip(), *(re.sub(r"^\* ?", "", line.lstrip(), count=1).rstrip()
                             for line in others)]


def flow(lines):
    """Prose is filled, indented lines are kept."""
    out, kept = [], []
    for line in lines + [""]:
        if line.startswith("  "):
            kept.append(line)
            continue
        if kept:
            out += verbatim(kept)
            kept = []
        out.append(escape(line) if line else ".PP")
    while out and out[-1] == ".PP":
        out.pop()
    while out and out[0] == ".PP":
        out.pop(0)
    return out


def parts(header):
    """(comment, code) pairs, in order. A comment belongs to code that follows it without a gap."""
    header = header[:header.rindex("#ifdef __cplusplus")]
    blocks = []
    for piece in re.split(r"\n\n+", header):
        last = blocks[-1] if blocks else ""
        if last.count("{") > last.count("}") and "typedef" in last:  # a struct with blank lines
            blocks[-1] += "\n\n" + piece
        else:
            blocks.append(piece)
    for block in blocks:
        match = re.match(r"(/\*.*?\*/)\n?(.*)", block, re.S)
        if match and not re.match(r"/\*.*\*/[^\n]*;", block.split("\n")[0]):
            yield match.group(1), match.group(2)
        else:
            yield "", block


def page(header, version):
    first, *rest = parts(header)
    opening = comment_text(first[0])
    out = [f'.TH CRUNRT 3 "" "crun {version}" "Library Functions"', ".SH NAME",
           "crunrt \\- worker runtime of crun: rank, store and process groups in C and C++",
           ".SH SYNOPSIS", ".nf", ".B #include <crunrt.h>", ".PP",
           "cc program.c $(pkg\\-config \\-\\-cflags \\-\\-libs crunrt)", ".fi",
           ".SH DESCRIPTION", *flow(opening[2:])]
    for comment, code in rest:
        title = re.match(r"/\* ---- (.*?) ----", comment)
        if title:
            out.append(f'.SH "{title.group(1).upper()}"')
            lines = comment_text(comment)[1:]
            out += flow(lines) if any(lines) else []
            comment = ""
        code = re.sub(r"\bCRUNRT_API ", "", code).strip()
        if re.match(r"#(ifndef|ifdef|include|if |define CRUNRT_(H|API)\b)", code):
            continue
        if not (code or comment):
            continue
        if code:
            out += ([] if out[-1].startswith(".SH") else [".PP"]) + verbatim(code.split("\n"))
        if comment:
            text = flow(comment_text(comment))
            out += [".RS", *text, ".RE"] if code else text
    out.append(".SH ENVIRONMENT")
    for name, meaning in ENVIRONMENT:
        out += [".TP", f".B {escape(name)}", escape(meaning)]
    out += [".SH FILES", ".TP",
            ".I crunrt/gloo.so, crunrt/nccl.so, crunrt/rccl.so, crunrt/mpi.so,",
            ".I crunrt/store_host.so",
            "Backends, the store's server, and (crunrt/torch_gloo.so) what crunrt.recovery of",
            "Python needs, loaded on demand from the folder crunrt/ beside the",
            "library, from ../lib/crunrt/, /usr/local/lib/crunrt or /usr/lib/crunrt.",
            ".SH SEE ALSO", ".BR crun (1)"]
    return "\n".join(out) + "\n"


if __name__ == "__main__":
    with open(sys.argv[1], encoding="utf-8") as f:
        sys.stdout.write(page(f.read(), sys.argv[2]))
