#!/usr/bin/env python3
# timeout: 120
"""--log-format=json: every teed line and every line of crun itself is one JSON object; files stay
as they are."""
import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
from crun_test import clean_env, crun, read_text, run_tests, script  # noqa: E402

WRITES = r"""#!/usr/bin/python3
import os, sys
out = sys.stdout.buffer
rank = os.environ["RANK"]
out.write(b'rank %s: "quoted" \\ back\tslash\x1b[0m \xff \xc3\xa4 \x00 end\n' % rank.encode())
out.write(b"5 %\r10 %\rdone\n")
out.write(b"x" * 200000 + b"\n")
sys.stderr.write("warn of this\nlast without newline")
sys.stdout.flush()
sys.exit(int(sys.argv[1]) if rank == "1" else 0)
"""


def objects(text):
    return [json.loads(line) for line in text.splitlines()]


def lines(found, rank, stream):
    return [o["line"] for o in found if o.get("rank") == rank and o["stream"] == stream]


def test_teed_lines(tmp):
    done = crun("--nproc-per-node=2", "--log-format=json", "--tee=3", f"--log-dir={tmp}/logs",
                "--role=tr\"ainer", "--duplicate-stderr-filters=warn", script(tmp, "w", WRITES),
                "0", env=clean_env(OMP_NUM_THREADS=1))
    assert done.returncode == 0, done
    found = objects(done.stdout) + objects(done.stderr)
    for o in found:
        assert set(o) == {"time", "host", "role", "rank", "local_rank", "stream", "line"}, o
        assert o["role"] == 'tr"ainer' and o["local_rank"] == o["rank"] and o["host"], o
        assert o["time"].endswith("Z"), o
    for rank in (0, 1):
        # "10 %" is an update of a progress bar, which "done" replaces if it comes within 5 s
        out = [x for x in lines(found, rank, "stdout") if x != "10 %"]
        text = f'rank {rank}: "quoted" \\ back\tslash\x1b[0m \ufffd ä \0 end'
        assert out[:3] == [text, "5 %", "done"], out[:3]
        assert "".join(out[3:]) == "x" * 200000, len(out)  # in pieces
        assert lines(found, rank, "stderr") == ["warn of this", "last without newline"], found
    files = list((tmp / "logs").rglob("stdout.log"))
    assert len(files) == 2 and all(b"5 %\r10 %\r" in f.read_bytes() for f in files)
    filtered = [read_text(f) for f in (tmp / "logs").rglob("filtered_stderr.log")]
    assert sorted(filtered[0].splitlines()) == \
        ['[tr"ainer0]:warn of this', '[tr"ainer1]:warn of this'], filtered


def test_own_lines(tmp):
    done = crun("--nproc-per-node=2", "--log-format=json", "--tee=3", "--max-restarts=1",
                script(tmp, "w", WRITES), "3", env=clean_env(LOGLEVEL="info"))
    assert done.returncode == 1, done
    own = [o for o in objects(done.stderr) if "level" in o]
    for o in own:
        assert set(o) == {"time", "host", "program", "pid", "level", "text"}, o
        assert o["program"] == "crun" and o["pid"] > 1, o
    assert {o["level"] for o in own} == {"info", "warning", "error"}, own
    texts = [o["text"] for o in own if o["level"] == "error"]
    assert any("where the time went" in t and "\n" in t for t in texts), texts
    assert texts[-1].startswith("crun: rank 1 ") and "Root Cause" in texts[-1], texts


def test_wrong_and_default(tmp):
    wrong = crun("--log-format=xml", "true")
    assert wrong.returncode == 2 and "'xml' is neither text nor json" in wrong.stderr, wrong
    # what is not teed is not touched
    done = crun("--log-format=json", script(tmp, "w", "#!/bin/sh\necho plain\n"))
    assert done.stdout == "plain\n" and done.stderr == "", done
    teed = crun("--log-format=text", "--tee=3", script(tmp, "w", "#!/bin/sh\necho plain\n"))
    assert teed.stdout == "[default0]:plain\n", teed


if __name__ == "__main__":
    run_tests(globals())
