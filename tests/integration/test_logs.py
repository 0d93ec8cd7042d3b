#!/usr/bin/env python3
"""The workers' output: redirect, tee, prefixes, filters, the tree of files (contract 47 to 55)."""
import os
import pathlib
import pty
import re
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
from crun_test import CRUN, TIMEOUT_S, clean_env, crun, run, run_tests, script, skip, \
    start  # noqa: E402

SPEAK = '#!/bin/sh\necho "out $LOCAL_RANK"\necho "err $LOCAL_RANK" >&2\n'


def files(logs):
    """{'attempt_0/0/stdout.log': bytes}, and the folder of the job above them, which also has
    crun's verdict.json."""
    jobs = list(pathlib.Path(logs).iterdir())
    assert len(jobs) == 1, jobs
    found = {str(p.relative_to(jobs[0])): p.read_bytes() for p in jobs[0].rglob("*") if p.is_file()}
    assert found.pop("verdict.json", None), jobs
    return jobs[0], found


def lines(text):
    return sorted(text.splitlines())


def test_tree_without_redirects(tmp):
    done = crun("--nproc-per-node=2", f"--log-dir={tmp}/a/logs", "--rdzv-id=job",
                script(tmp, "w", SPEAK))
    assert done.returncode == 0, done
    job, found = files(tmp / "a" / "logs")
    assert re.fullmatch(r"job_[a-z0-9_]{8}", job.name), job
    assert job.stat().st_mode & 0o777 == 0o700
    assert found == {}
    assert sorted(p.name for p in (job / "attempt_0").iterdir()) == ["0", "1"]
    assert lines(done.stdout) == ["out 0", "out 1"] and lines(done.stderr)[-2:] == ["err 0",
                                                                                    "err 1"]


def test_nobody_else_can_read_what_is_made(tmp):
    """Whatever the umask is: logs, events and the list of failures may name secrets."""
    worker = script(tmp, "w", SPEAK + "seq 100000\nexit 3\n")
    (tmp / "made").mkdir()
    command = (f'umask 0; exec "{CRUN}" -r 3 --log-max-size=100K --log-dir="{tmp}/made/a/logs" '
               f'--event-log="{tmp}/made/events" "{worker}"')
    done = run(["sh", "-c", command], env=clean_env(CRUN_FAILURES_FILE=tmp / "made" / "failures"))
    assert done.returncode == 1, done
    made = list((tmp / "made").rglob("*"))
    assert {"failures", "events", "a", "logs", "0", "stdout.log",
            "stdout.log.last.1"} <= {p.name for p in made}, made
    for path in made:
        assert path.stat().st_mode & 0o077 == 0, (path, oct(path.stat().st_mode))


def test_a_link_of_somebody_else_is_not_followed(tmp):
    if os.geteuid() != 0:
        skip("making a link of another user needs root")
    worker = script(tmp, "w", "#!/bin/sh\nexit 3\n")
    (tmp / "precious").write_text("precious")
    (tmp / "failures").symlink_to(tmp / "precious")
    os.lchown(tmp / "failures", 65533, 65533)
    done = crun(worker, env=clean_env(CRUN_FAILURES_FILE=tmp / "failures"))
    assert done.returncode == 1 and "cannot write the list of failures" in done.stderr, done
    assert (tmp / "precious").read_text() == "precious"
    os.lchown(tmp / "failures", 0, 0)  # now it is our own link
    done = crun(worker, env=clean_env(CRUN_FAILURES_FILE=tmp / "failures"))
    assert (tmp / "precious").read_text().startswith("0 0 "), done
    (tmp / "precious").write_text("precious")
    (tmp / "events").symlink_to(tmp / "precious")
    os.lchown(tmp / "events", 65533, 65533)
    done = crun(f"--event-log={tmp}/events", "true")
    assert done.returncode != 0 and "cannot open the event log" in done.stderr, done
    assert (tmp / "precious").read_text() == "precious"


def test_run_id_with_slashes(tmp):
    done = crun("--rdzv-id=a/../b%", f"--log-dir={tmp}/logs", "true")
    assert done.returncode == 0, done
    assert files(tmp / "logs")[0].name.startswith("a%2F..%2Fb%25_")


def test_redirect_all(tmp):
    done = crun("--nproc-per-node=2", "-r", "3", f"--log-dir={tmp}/logs", script(tmp, "w", SPEAK))
    assert done.returncode == 0 and done.stdout == "" and "err" not in done.stderr.replace("warn",
                                                                                           ""), done
    assert files(tmp / "logs")[1] == {
        "attempt_0/0/stdout.log": b"out 0\n", "attempt_0/0/stderr.log": b"err 0\n",
        "attempt_0/1/stdout.log": b"out 1\n", "attempt_0/1/stderr.log": b"err 1\n"}


def test_tee(tmp):
    done = crun("--nproc-per-node=2", "--role=tr", "-t", "3", f"--log-dir={tmp}/logs",
                script(tmp, "w", SPEAK), env=clean_env(OMP_NUM_THREADS=1))
    assert lines(done.stdout) == ["[tr0]:out 0", "[tr1]:out 1"], done
    assert lines(done.stderr) == ["[tr0]:err 0", "[tr1]:err 1"], done
    assert files(tmp / "logs")[1]["attempt_0/1/stderr.log"] == b"err 1\n"


def test_default_prefix_and_template(tmp):
    done = crun("-t", "1", f"--log-dir={tmp}/logs", "echo", "x")
    assert done.stdout == "[default0]:x\n", done
    template = "<${role_name} $rank/${local_rank} $$ $no> "
    env = clean_env(TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE=template)
    done = crun("-t", "1", f"--log-dir={tmp}/logs", "echo", "x", env=env)
    assert done.stdout == "<default 0/0 $ $no> x\n", done


def test_lines_are_cut_as_torchrun_does(tmp):
    text = r"a\r\nb\rc\n\nlast"
    done = crun("-t", "1", f"--log-dir={tmp}/logs", "--no-python", "printf", text)
    assert done.stdout == "".join(f"[default0]:{t}\n" for t in ("a", "b", "c", "", "last")), done
    assert files(tmp / "logs")[1]["attempt_0/0/stdout.log"] == b"a\r\nb\rc\n\nlast"


def test_any_bytes_pass(tmp):
    # without "\r", which makes updates of a progress bar, and those may be left out
    blob = bytes(range(256)).replace(b"\r", b"") * 300
    (tmp / "blob").write_bytes(blob)
    worker = script(tmp, "w", f"#!/bin/sh\ncat {tmp}/blob\ncat {tmp}/blob >&2\n")
    done = subprocess.run([CRUN, "-t", "1", f"--log-dir={tmp}/logs", worker], capture_output=True,
                          env=clean_env(), timeout=TIMEOUT_S)
    assert files(tmp / "logs")[1]["attempt_0/0/stdout.log"] == blob
    assert done.stderr == blob  # not teed: byte for byte
    teed = b"".join(done.stdout.split(b"[default0]:"))
    assert teed.replace(b"\n", b"") == blob.replace(b"\n", b"")


def test_a_filter_of_ranks(tmp):
    worker = script(tmp, "w", SPEAK)
    env = clean_env(OMP_NUM_THREADS=1)
    args = ["--nproc-per-node=2", "--local-ranks-filter=0", f"--log-dir={tmp}/logs"]
    done = crun(*args, "-t", "1", worker, env=env)
    assert (done.stdout, done.stderr) == ("[default0]:out 0\n", "err 0\n"), done
    assert files(tmp / "logs")[1] == {"attempt_0/0/stdout.log": b"out 0\n",
                                      "attempt_0/1/stdout.log": b"out 1\n"}


def test_last_words_of_a_filtered_rank(tmp):
    worker = script(tmp, "w",
                    '#!/bin/sh\n[ $LOCAL_RANK = 0 ] && exec sleep 60\necho hidden >&2\nexit 3\n')
    done = crun("--nproc-per-node=2", "--local-ranks-filter=0", f"--log-dir={tmp}/logs", worker)
    words = [line for line in done.stderr.splitlines() if "hidden" in line]
    assert len(words) == 2 and "its last line: 'hidden'" in words[0] and words[1] == "    | hidden"


def test_duplicates_by_filter(tmp):
    worker = script(tmp, "w", "#!/bin/sh\nprintf 'an apple\\nplum\\na,b\\nab'\necho apple >&2\n")
    crun("-t", "1", "--duplicate-stdout-filters=apple,a,,b", f"--log-dir={tmp}/logs", worker)
    found = files(tmp / "logs")[1]
    assert found["attempt_0/filtered_stdout.log"] == b"[default0]:an apple\n[default0]:a,b\n", found
    assert "attempt_0/filtered_stderr.log" not in found


def test_attempts_have_folders(tmp):
    worker = script(tmp, "w", "#!/bin/sh\necho $TORCHELASTIC_RESTART_COUNT\n"
                              "[ $TORCHELASTIC_RESTART_COUNT = 2 ]\n")
    done = crun("-r", "1", "--max-restarts=2", f"--log-dir={tmp}/logs", worker)
    assert done.returncode == 0, done
    assert files(tmp / "logs")[1] == {f"attempt_{n}/0/stdout.log": b"%d\n" % n for n in range(3)}


def test_no_logs_at_all(tmp):
    worker = script(tmp, "w", '#!/bin/sh\necho "<$TORCHELASTIC_ERROR_FILE>"\n')
    done = crun("--nproc-per-node=2", "--log-dir=/dev/null", "-r", "1", "--local-ranks-filter=0",
                worker,
                env=clean_env(TMPDIR=tmp))
    assert done.stdout == "<>\n<>\n", done
    assert [p.name for p in tmp.iterdir()] == ["w"]


# Each worker writes 50 equal lines, beginning when all of them run.
EQUAL = """#!/bin/sh
: > up.$RANK
until [ -e up.0 ] && [ -e up.1 ]; do sleep 0.01; done
i=0
while [ $i -lt 50 ]; do i=$((i + 1)); echo same $i; sleep 0.02; done
"""


def check_folded(done):
    """Each rank has all lines. A line waits only a while for its equals, and on a busy machine some
    may be too late for each other; but not all of them."""
    seen = {"0": [], "1": []}
    for line in done.stdout.splitlines():
        ranks, text = re.fullmatch(r"\[default(0|1|0-1)\]:(.*)", line).groups()
        for rank in ranks.split("-"):
            seen[rank].append(text)
    assert seen["0"] == seen["1"] == [f"same {i}" for i in range(1, 51)], done
    assert "[default0-1]:" in done.stdout, done


def test_prefixes_without_log_files(tmp):
    """Teed lines get their prefix, are folded and are written as JSON also if there are no logs."""
    long = "x" * 200000
    worker = script(tmp, "w", f"#!/bin/sh\necho one; echo {long}; printf 'last'; echo two >&2\n")
    options = ["--nproc-per-node=2", "--log-dir=/dev/null"]
    done = crun(*options, "-t", "3", worker, env=clean_env(TMPDIR=tmp))
    assert done.returncode == 0, done
    for rank in range(2):
        own = [line for line in done.stdout.splitlines() if line.startswith(f"[default{rank}]:")]
        assert own[0].endswith(":one") and own[-1].endswith(":last"), (own[0], own[-1][:40])
        assert "".join(line.partition(":")[2] for line in own[1:-1]) == long
        assert f"[default{rank}]:two" in done.stderr, done
    check_folded(crun(*options, "--fold", script(tmp, "w", EQUAL), cwd=tmp,
                      env=clean_env(TMPDIR=tmp)))
    as_json = crun(*options, "-t", "1", "--log-format=json", "echo", "same",
                   env=clean_env(TMPDIR=tmp))
    assert as_json.stdout.count('"line":"same"') == 2, as_json
    assert sorted(p.name for p in tmp.iterdir()) == ["up.0", "up.1", "w"]


def test_log_folder_that_is_a_file(tmp):
    (tmp / "file").write_text("")
    done = crun(f"--log-dir={tmp}/file", "echo", "started")
    assert done.returncode == 1 and done.stdout == "", done
    assert f"cannot create the log folder '{tmp}/file" in done.stderr, done
    assert "--log-dir" in done.stderr, done
    assert done.stderr.count("\n") == 1, done


def test_temp_folder_as_python_finds_it(tmp):
    (tmp / "second").mkdir()
    done = crun("-r", "3", script(tmp, "w", SPEAK),
                env=clean_env(TMPDIR=tmp / "gone", TEMP=tmp / "w", TMP=tmp / "second"))
    assert done.returncode == 0 and not done.stderr, done
    made = list((tmp / "second").iterdir())
    assert len(made) == 1 and made[0].name.startswith("torchelastic_"), made


def test_log_folder_below_a_folder_that_is_gone(tmp):
    gone = tmp / "gone"
    gone.mkdir()
    done = run(["sh", "-c", f'cd {gone} && rmdir {gone} && exec {CRUN} --log-dir=here true'])
    assert done.returncode == 1, done
    assert "the log folder 'here' absolute: No such file" in done.stderr, done


def test_too_few_open_files(tmp):
    worker = script(tmp, "w", SPEAK)
    done = run(["sh", "-c", 'ulimit -n 64; exec "$@"', "sh", CRUN, "--nproc-per-node=60", "-t", "3",
                f"--log-dir={tmp}/logs", worker], env=clean_env(OMP_NUM_THREADS=1))
    assert done.returncode == 1, done
    assert "pen files; raise the limit of open files, which is 64 (ulimit -Hn)" in done.stderr, done


def test_stderr_is_a_terminal_where_ours_is(tmp):
    worker = script(tmp, "w",
                    "#!/bin/sh\n[ -t 2 ] && printf '10%%\\r20%%\\nend' >&2\nstty size <&2\n")
    ours, theirs = pty.openpty()
    subprocess.run(["stty", "rows", "33", "cols", "77"], stdin=theirs, check=True)
    launch = start([CRUN, f"--log-dir={tmp}/logs", worker], stderr=theirs)
    os.close(theirs)
    shown = b""
    while True:
        try:
            data = os.read(ours, 4096)
        except OSError:
            data = b""
        if not data:
            break
        shown += data
    assert launch.communicate(timeout=TIMEOUT_S)[0] == "33 77\n"
    assert shown == b"10%\r20%\r\nend", shown  # the newline is the terminal's own doing, once


ORDER = ("#!/usr/bin/python3\nimport os\n"
         "for i in range(2000): os.write(1, b'o%d\\n' % i), os.write(2, b'e%d\\n' % i)\n")


def test_order_of_stdout_and_stderr(tmp):
    """Where both go to one place, lines of stdout and stderr have the order of the writes."""
    worker = script(tmp, "w", ORDER)
    want = [f"{c}{i}" for i in range(2000) for c in "oe"]
    done = subprocess.run([CRUN, worker], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, env=clean_env(), timeout=TIMEOUT_S)
    assert done.stdout.splitlines() == want
    with open(tmp / "log", "w") as log:  # one open file, as after "> log 2>&1"
        subprocess.run([CRUN, worker], stdout=log, stderr=log, env=clean_env(), timeout=TIMEOUT_S)
    assert (tmp / "log").read_text().splitlines() == want
    ours, theirs = pty.openpty()
    launch = start([CRUN, worker], stdout=theirs, stderr=theirs)
    os.close(theirs)
    shown = b""
    while not shown.endswith(b"e1999\r\n"):
        shown += os.read(ours, 65536)
    assert launch.wait(timeout=TIMEOUT_S) == 0
    assert shown.decode().split() == want
    done = crun(worker)  # two pipes: nothing is mixed
    assert done.stdout.split() == want[::2] and done.stderr.split() == want[1::2]


def test_last_words_of_both_streams(tmp):
    worker = script(tmp, "w", "#!/bin/sh\necho first\necho second >&2\nexit 3\n")
    done = subprocess.run([CRUN, worker], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, env=clean_env(), timeout=TIMEOUT_S)
    assert "last lines of its output:\n    | first\n    | second\n" in done.stdout, done.stdout


def test_teed_stderr_is_no_terminal(tmp):
    worker = script(tmp, "w", "#!/bin/sh\n[ -t 2 ] && echo terminal >&2\necho end >&2\n")
    ours, theirs = pty.openpty()
    launch = start([CRUN, "-t", "3", f"--log-dir={tmp}/logs", worker], stderr=theirs)
    os.close(theirs)
    shown = b""
    while not shown.endswith(b"end\r\n"):
        shown += os.read(ours, 4096)
    assert launch.wait(timeout=TIMEOUT_S) == 0
    assert shown == b"[default0]:end\r\n", shown
    launch.stdout.close()


def test_nothing_is_left_in_the_temp_folder(tmp):
    """A job that ended well, whose logs nobody asked for, leaves nothing. What is written stays."""
    for place in ("a", "b", "c"):
        (tmp / place).mkdir()
    done = crun("--nproc-per-node=2", "true", env=clean_env(TMPDIR=tmp / "a", LOGLEVEL="info"))
    assert done.returncode == 0 and list((tmp / "a").iterdir()) == [], done
    assert re.search(rf"logs are in '{tmp}/a/torchelastic_\w{{8}}/\S+'", done.stderr), done
    worker = script(tmp, "w", "#!/bin/sh\necho '{}' > $TORCHELASTIC_ERROR_FILE\n")
    assert crun(worker, env=clean_env(TMPDIR=tmp / "b")).returncode == 0
    assert len(list((tmp / "b").rglob("error.json"))) == 1
    assert crun("false", env=clean_env(TMPDIR=tmp / "c")).returncode == 1
    assert len(list((tmp / "c").glob("torchelastic_*/*/attempt_0/0"))) == 1


def without_gaps(shown, lines):
    """Returns the lines of `shown` without prefix. Where a line states how many bytes are left out
    of `lines`, exactly these bytes must be missing; they are put in its place."""
    whole = "".join(f"{line}\n" for line in lines)
    text = ""
    for line in shown:
        content = line.removeprefix("[default0]:")
        gap = re.fullmatch(r"\[crun: (\d+) bytes are left out here\]", content)
        text += whole[len(text):len(text) + int(gap[1])] if gap else f"{content}\n"
    return text.splitlines()


def test_size_limit(tmp):
    """Of a log that would be larger than --log-max-size, the first and the last part are kept. The
    console gets all of it, but for what the limit removed from the file before a reader that is
    slower than the worker came to it; a line says how many bytes these are."""
    worker = script(tmp, "w", "#!/usr/bin/python3\nfor i in range(40000): print(i, 'x' * 50)\n")
    lines = [f"{i} {'x' * 50}" for i in range(40000)]
    for option, shown in (("-t", lines), ("-r", [])):
        logs = tmp / f"logs{option}"
        done = crun(option, "1", "--log-max-size=100K", f"--log-dir={logs}", worker)
        assert done.returncode == 0, done.stderr
        assert without_gaps(done.stdout.splitlines(), lines) == shown, done.stdout[:4000]
        found = files(logs)[1]
        assert sum(len(text) for text in found.values()) <= 100 * 1024 + 300, found.keys()
        names = ["stdout.log", "stdout.log.last", "stdout.log.last.1"]
        assert sorted(found) == [f"attempt_0/0/{name}" for name in names], found.keys()
        first, last, older = [found[key].decode().splitlines() for key in sorted(found)]
        assert first == lines[:len(first)] and len(first) > 800, len(first)
        assert older[0].startswith("[crun: here the output goes on at byte "), older[0]
        end = older[1:] + last[1:]
        assert end == lines[-len(end):] and len(end) > 400, len(end)
    # a line without an end is cut, so that the limit holds
    endless = script(tmp, "endless", "#!/usr/bin/python3\nimport os\n"
                                     "for i in range(3000): os.write(1, b'x' * 1000)\n")
    done = crun("-r", "1", "--log-max-size=100K", f"--log-dir={tmp / 'endless-logs'}", endless)
    found = files(tmp / "endless-logs")[1]
    assert done.returncode == 0 and sum(map(len, found.values())) <= 112 * 1024 + 300, found.keys()
    done = crun("--log-max-size=100", "true")
    assert done.returncode == 2 and "--log-max-size: '100' is not a size" in done.stderr, done


def test_lines_for_the_journal(tmp):
    """A stderr that systemd has connected to its journal gets priorities instead of times."""
    ours, theirs = os.pipe()
    place = os.fstat(theirs)
    for stream, head in ((f"{place.st_dev}:{place.st_ino}", r"<6>crun\[\d+\] info: "),
                         ("1:1", r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} \S+ crun\[\d+\] info: ")):
        subprocess.run([CRUN, "true"], stderr=theirs, check=True, timeout=TIMEOUT_S,
                       env=clean_env(JOURNAL_STREAM=stream, LOGLEVEL="info"))
        text = os.read(ours, 65536).decode()
        assert all(re.match(head, line) for line in text.splitlines()), text
    os.close(ours)
    os.close(theirs)


def test_lines_of_ranks_never_mix(tmp):
    worker = script(tmp, "w", "#!/usr/bin/python3\nimport os, sys\nr = os.environ['LOCAL_RANK']\n"
                              "for i in range(3000):\n"
                              "    os.write(1, (r * 37).encode())\n"
                              "    os.write(1 + i % 2, (r * (i % 300) + '\\n').encode())\n")
    done = subprocess.run([CRUN, "--nproc-per-node=4", "-t", "3", f"--log-dir={tmp}/logs", worker],
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          timeout=TIMEOUT_S, env=clean_env(OMP_NUM_THREADS=1))
    assert done.returncode == 0
    total = 0
    for line in done.stdout.splitlines():
        prefix, rank, text = re.fullmatch(r"(\[default(\d)\]:)(.*)", line).groups()
        assert set(text) <= {rank}, line
        total += len(text)
    assert total == 4 * sum(37 + i % 300 for i in range(3000))


if __name__ == "__main__":
    run_tests(globals())
