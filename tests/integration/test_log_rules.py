#!/usr/bin/env python3
# timeout: 240
"""Tests --hang-rule and --value-rule: rules on what the workers write decide that they hang, or
that a value is bad."""
import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
from crun_test import PACE, clean_env, crun, run_tests, script

NEVER = "100000"  # seconds


def worker(tmp, text):
    return script(tmp, "worker.sh", "#!/bin/sh\n" + text)


def verdict(tmp):
    return json.loads(next(tmp.glob("logs/*/verdict.json")).read_text())


def causes(tmp):
    events = [json.loads(line) for line in (tmp / "events").read_text().splitlines()]
    return [e["cause"] for e in events if e["event"] == "round_broken"]


def test_a_line_that_does_not_come_again(tmp):
    """The rule ends the round as --hang-timeout does: inspection, verdict, restart, exit code. The
    only line is written when both workers sleep, so that the inspection finds them there."""
    program = worker(tmp, "me=pid.$TORCHELASTIC_RESTART_COUNT.\n"
                          "echo $$ > new.$RANK; mv new.$RANK $me$RANK\n"
                          "sleeps() { grep -q sleep /proc/$(cat $me$1)/comm; }\n"
                          "[ $RANK = 1 ] && (until [ -e ${me}0 ] && sleeps 0 && sleeps 1; do\n"
                          "    sleep 0.05; done; echo loss=1) &\nexec sleep " + NEVER)
    done = crun("--no-python", "--nproc-per-node=2", "--hang-rule", "600:1.5:loss=",
                "--max-restarts=1", "--exit-codes=distinct", "--log-dir=logs",
                "--event-log=events", program, cwd=tmp)
    assert done.returncode == 85, done
    assert causes(tmp) == ["hang", "hang"], done
    lines = done.stderr.splitlines()
    report = next(n for n, line in enumerate(lines) if line.startswith("crun: the workers on "))
    assert " hang (no line has matched --hang-rule '600:1.5:loss=' for " in lines[report], done
    assert ", and one was expected every 1.5 s; the last one came from rank 1): " in lines[report]
    assert "2 ranks are at the same place" in lines[report], done
    assert lines[report + 1].startswith("  ranks 0-1 (2 ranks): sleep"), done
    assert sum("restart 1 of 1" in line for line in lines) == 1, done
    first = verdict(tmp)["first_failure"]
    assert first["kind"] == "hang" and "the last one came from rank 1" in first["what"], first
    places = verdict(tmp)["inspection"]
    assert places[0].startswith("  ranks 0-1 (2 ranks): sleep"), places
    assert all(line.startswith("    ") for line in places[1:]), places  # the report ends with them


def test_a_first_line_that_does_not_come(tmp):
    program = worker(tmp, "echo begins\nexec sleep " + NEVER)
    done = crun("--no-python", "--hang-rule=600::begins", "--hang-rule=0.7::goes on",
                program, cwd=tmp)
    assert done.returncode == 1, done
    assert "no line has matched --hang-rule '0.7::goes on' since the workers were started" in \
        done.stderr, done
    assert "the first one was expected within 0.7 s): " in done.stderr, done


def test_a_job_that_obeys_its_rules(tmp):
    program = worker(tmp, "echo begins\nif [ $RANK = 0 ]; then echo loss=1 >&2; exit; fi\n"
                          "echo saving\n")
    done = crun("--no-python", "--nproc-per-node=3", "--hang-rule=600:600:loss=",
                "--hang-rule=600:600:begins", "--hang-rule=end:saving",
                "--value-rule=>1::loss=(.*)", program, cwd=tmp)
    assert done.returncode == 0 and "hang (" not in done.stderr, done


def test_bad_values(tmp):
    """A value rule fails the round at once; the next round fails by itself, with another cause."""
    program = worker(tmp, "[ $TORCHELASTIC_RESTART_COUNT = 1 ] && exit 5\n"
                          "[ $RANK = 1 ] && echo loss=1,lr=2 && echo loss=nan,lr=2 && "
                          "echo loss=nan,lr=2\nexec sleep " + NEVER)
    done = crun("--no-python", "--nproc-per-node=2", "--value-rule=nan:2:loss=([^,]*)",
                "--max-restarts=1", "--log-dir=logs", "--event-log=events", program, cwd=tmp)
    assert done.returncode == 1, done
    what = ("rank 1 (local rank 1) on HOST has failed: 2 lines in a row showed a bad value, last "
            "'nan', for --value-rule 'nan:2:loss=([^,]*)'")
    before, after = what.split("HOST")
    assert any(before in line and after + "; stopping the other workers" in line
               for line in done.stderr.splitlines()), done
    assert causes(tmp) == ["failure", "failure"], done


def test_the_verdict_on_a_bad_value(tmp):
    program = worker(tmp, "echo tokens/s: 12\nexec sleep " + NEVER)
    done = crun("--no-python", "--value-rule=<80::tokens/s: (.*)", "--log-dir=logs", program,
                cwd=tmp)
    assert done.returncode == 1, done
    first = verdict(tmp)["first_failure"]
    assert first["kind"] == "value" and first["rank"] == 0 and "--value-rule" in first["advice"]
    assert "1 line in a row showed a bad value, last '12'" in first["what"], first


def test_a_hang_is_not_the_cause_of_a_later_failure(tmp):
    """A worker fails in the round after a hang. The ledger must not name the hang as the cause, and
    the verdict must not have the inspection of the hang."""
    program = worker(tmp, "[ $TORCHELASTIC_RESTART_COUNT = 1 ] && exit 5\nexec sleep " + NEVER)
    # long enough for the worker of the second round to begin
    done = crun("--no-python", f"--hang-timeout={2 * PACE:g}", "--max-restarts=1",
                "--event-log=events",
                "--log-dir=logs", program, cwd=tmp)
    assert done.returncode == 1 and causes(tmp) == ["hang", "failure"], done
    assert not verdict(tmp)["inspection"], verdict(tmp)  # the place of the hang is not repeated


def test_the_variables(tmp):
    """A variable has one rule a line."""
    program = worker(tmp, "echo a\nexec sleep " + NEVER)
    env = clean_env(PET_HANG_RULE="600:100:a\n0.3::b", PET_VALUE_RULE="nan::c=(.*)")
    done = crun("--no-python", program, cwd=tmp, env=env)
    assert done.returncode == 1 and "--hang-rule '0.3::b' since" in done.stderr, done


def test_a_wrong_expression(tmp):
    done = crun("--no-python", "--hang-rule=1:1:a(", "true", cwd=tmp)
    assert done.returncode == 2 and done.stderr.startswith(
        "crun: error: --hang-rule: the rule '1:1:a(': REGEX 'a(' is not an extended regular "
        "expression: "), done


OUTPUTS = [[], ["-r3"], ["-t3"], ["-r1", "-t2"], ["-t1", "--log-dir=/dev/null"],
           ["--local-ranks-filter=1"], ["-r3", "--log-max-size=10M"], ["--fold"]]


def outputs(tmp, name, options, *rules):
    """Runs a job whose workers write to both streams. Returns what came to the console and into the
    log files, without the order of the lines of different workers."""
    program = worker(tmp, "echo out $RANK\necho err $RANK >&2\nprintf last$RANK\n")
    (tmp / name).mkdir()
    if not any("log-dir" in o for o in options):
        options = [*options, "--log-dir=logs"]
    done = crun("--no-python", "--nproc-per-node=2", *options, *rules, program, cwd=tmp / name,
                env=clean_env(OMP_NUM_THREADS=1))
    assert done.returncode == 0, done
    files = {str(path.relative_to(tmp / name)).split("/", 2)[-1]: path.read_text()
             for path in (tmp / name).glob("logs/**/*.log")}
    return sorted(done.stdout), sorted(done.stderr), files


def test_output_is_the_same_with_rules(tmp):
    """Rules need the output to pass through crun. It comes to the same places."""
    for n, options in enumerate(OUTPUTS):
        plain = outputs(tmp, f"plain{n}", options)
        ruled = outputs(tmp, f"ruled{n}", options, "--hang-rule=600:600:out")
        assert plain == ruled, (options, plain, ruled)


def test_each_output_is_seen(tmp):
    """Wherever the output goes, the rules see both streams, also a last line without its end."""
    for n, options in enumerate(OUTPUTS):
        for stream in ("", ">&2"):
            program = worker(tmp, f"printf 'v=bad' {stream}; exec >&- 2>&-; exec sleep {NEVER}")
            (tmp / f"{n}{stream}").mkdir()
            done = crun("--no-python", "--nproc-per-node=2", *options,
                        "--value-rule=nan::v=(.*)", program, cwd=tmp / f"{n}{stream}")
            assert done.returncode == 1 and "last 'bad'" in done.stderr, (options, done)


if __name__ == "__main__":
    run_tests(globals())
