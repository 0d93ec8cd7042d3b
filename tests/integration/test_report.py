#!/usr/bin/env python3
"""The verdict and the report: who failed first, of what, with its last words (contract 41 to
46)."""
import json
import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
from crun_test import clean_env, crun, run_tests, script  # noqa: E402

PY = "#!/usr/bin/python3\nimport json, os, signal, sys, time\nrank = int(os.environ['RANK'])\n"
VERDICT = r"^crun: rank (\d+) \(local rank (\d+), pid (\d+)\) on (\S+) failed first: (.*)$"


def verdict(done):
    found = re.search(VERDICT, done.stderr, re.M)
    assert found, done
    return found


def failing(tmp, text, *args, env=None, workers=3):
    done = crun(f"--nproc-per-node={workers}", f"--log-dir={tmp}/logs", *args,
                script(tmp, "job.py", PY + text), env=env or clean_env(OMP_NUM_THREADS=1))
    assert done.returncode == 1, done
    return done


def test_box(tmp):
    done = failing(tmp,
                   "if rank != 1: time.sleep(100)\n"
                   "print('my last words', file=sys.stderr)\nsys.exit(3)\n")
    v = verdict(done)
    assert (v[1], v[2], v[5]) == ("1", "1", "exit code 3"), done
    box = done.stderr[done.stderr.index("===="):]
    pattern = (r"(=+)\n\S*job\.py FAILED\n(-+)\nFailures:\n  <NO_OTHER_FAILURES>\n\2\n"
               r"Root Cause \(first observed failure\):\n\[0\]:\n"
               r"  time      : \d{4}-\d\d-\d\d_\d\d:\d\d:\d\d\n  host      : \S+\n"
               r"  rank      : 1 \(local_rank: 1\)\n  exitcode  : 3 \(pid: " + v[3] + r"\)\n"
               r"  error_file: <N/A>\n"
               r"  traceback : To enable traceback see: https://\S+\n\1\n")
    match = re.fullmatch(pattern, box)
    assert match and len(match[1]) == len(match[2]) <= 60, done
    assert "  last lines of its stderr:\n    | my last words\n" in done.stderr, done
    assert "  stopped by crun: rank 0 (SIGTERM), 2" in done.stderr or \
        "  stopped by crun: rank 0, 2 (SIGTERM)\n" in done.stderr, done


def test_signal_death(tmp):
    done = failing(tmp, "if rank == 2: os.kill(os.getpid(), signal.SIGKILL)\ntime.sleep(100)\n")
    v = verdict(done)
    assert v[1] == "2" and v[5].startswith("killed by signal 9 (SIGKILL, killed)"), done
    assert f"  exitcode  : -9 (pid: {v[3]})\n" in done.stderr, done
    assert f"  traceback : Signal 9 (SIGKILL) received by PID {v[3]}\n" in done.stderr, done


def test_last_words_from_a_file_and_a_tee(tmp):
    for option in ("-r", "-t"):
        done = failing(tmp, "for i in range(100): print('line', i, '\\x1b[31m', file=sys.stderr)\n"
                            "sys.exit(1)\n", option, "2", workers=1)
        words = re.findall(r"^    \| (.*)$", done.stderr, re.M)
        assert words == [f"line {i} \\x1b[31m" for i in range(80, 100)], done


def test_error_file_of_record(tmp):
    record = ("def record(text, stamp):\n"
              "    path = os.environ['TORCHELASTIC_ERROR_FILE']\n"
              "    open(path, 'w').write(json.dumps({'message': {'message': text, 'extraInfo':\n"
              "        {'py_callstack': 'Traceback\\n  ' + text, 'timestamp': str(stamp)}}}))\n")
    own = tmp / "own.json"
    env = clean_env(OMP_NUM_THREADS=1, TORCHELASTIC_ERROR_FILE=own)
    # rank 0 ends first, but rank 1 states the smaller time
    done = failing(tmp, record + "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
                   "record(f'ValueError: {rank}', 200 - rank)\n"
                   f"here = lambda n: os.path.exists('{tmp}/' + str(n))\n"
                   f"open('{tmp}/' + str(rank), 'w').close()\n"
                   "while not (here(0) and here(1)): time.sleep(0.01)\n"
                   "time.sleep(0.2 + 0.2 * rank)\nos._exit(4 + rank)\n", env=env, workers=2)
    assert verdict(done)[1] == "1", done
    assert "  message: ValueError: 1\n" in done.stderr, done
    assert "failed later: rank 0: exit code 4" in done.stderr, done
    assert re.search(r"  error_file: /.*/attempt_0/1/error.json\n  traceback : Traceback\n"
                     r"    ValueError: 1\n", done.stderr), done
    passed = json.loads(own.read_text())["message"]
    assert passed["message"] == "ValueError: 1" and passed["errorCode"] == 5, passed


def test_culprit_that_wrote_and_hung(tmp):
    done = failing(tmp, "path = os.environ['TORCHELASTIC_ERROR_FILE']\n"
                        "if rank == 0:\n"
                        "    open(path + '.new', 'w').write('{\"message\": \"the cause\"}')\n"
                        "    os.rename(path + '.new', path)\n"
                        "    time.sleep(100)\n"
                        "other = path.replace('/1/error', '/0/error')\n"
                        "while not os.path.exists(other): time.sleep(0.01)\n"
                        "time.sleep(0.3)\nsys.exit(9)\n", workers=2)
    v = verdict(done)
    assert v[1] == "0" and "the cause" in done.stderr, done
    assert "failed later: rank 1: exit code 9" in done.stderr, done


def test_corrupt_error_file_never_harms_the_report(tmp):
    own = tmp / "own.json"
    env = clean_env(OMP_NUM_THREADS=1, TORCHELASTIC_ERROR_FILE=own)
    for text in ("", "{\\\"mess", "\\0\\0", "[" * 5000, "{}"):
        own.unlink(missing_ok=True)
        done = failing(tmp, f"open(os.environ['TORCHELASTIC_ERROR_FILE'], 'w').write(\"{text}\")\n"
                            "sys.exit(5)\n", env=env, workers=1)
        assert verdict(done)[5] == "exit code 5", done
        assert "its error file could not be understood" in done.stderr, done
        passed = json.loads(own.read_text())["message"]
        assert passed["errorCode"] == 5 and "failed first: exit code 5" in passed["message"], passed


def test_error_file_that_is_a_pipe_or_a_folder(tmp):
    for make in ("os.mkfifo", "os.mkdir"):
        done = failing(tmp, f"{make}(os.environ['TORCHELASTIC_ERROR_FILE'])\nsys.exit(6)\n",
                       workers=1)
        assert verdict(done)[5] == "exit code 6" and "error_file: <N/A>" in done.stderr, done


def test_no_error_file_leaves_ours_alone(tmp):
    own = tmp / "own.json"
    failing(tmp, "sys.exit(1)\n", env=clean_env(TORCHELASTIC_ERROR_FILE=own), workers=1)
    assert not own.exists()


def test_first_by_the_kernel(tmp):
    # Rank 2 dies. Ranks 0 and 1 see the end of their pipe, wait until the kernel shows rank 2 as
    # dead, and fail at once. The report must name rank 2.
    fifo = tmp / "fifo"
    done = failing(tmp, f"path = '{fifo}'\n"
                        "if rank == 2:\n"
                        "    os.mkfifo(path + '0'); os.mkfifo(path + '1')\n"
                        "    ends = [open(path + str(i), 'w') for i in range(2)]\n"
                        "    for end in ends: print(os.getpid(), file=end, flush=True)\n"
                        "    os.kill(os.getpid(), signal.SIGSEGV)\n"
                        "while not os.path.exists(path + str(rank)): time.sleep(0.01)\n"
                        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
                        "pid = int(open(path + str(rank)).read())\n"
                        "def state():\n"
                        "    try: stat = open(f'/proc/{pid}/stat').read()\n"
                        "    except OSError: return 'X'\n"
                        "    return stat.rsplit(')', 1)[1].split()[0]\n"
                        "while state() not in 'ZX': time.sleep(0.001)\n"
                        "os._exit(7)\n")
    v = verdict(done)
    assert v[1] == "2", done
    assert v[5].startswith("killed by signal 11 (SIGSEGV, segmentation fault)"), done


if __name__ == "__main__":
    run_tests(globals())
