#!/usr/bin/env python3
# timeout: 240
"""Tests the reports of a job's status to Kubeflow's TrainJob: crun sends them to a stand-in for the
status server (tests/lib/trainer_server.py), and no failure of that server fails the job."""
import pathlib
import shutil
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
from crun_test import BUILD, CRUN, clean_env, crun, kill, run_tests, skip  # noqa: E402
from crun_test import start, wait_for  # noqa: E402
from etcd_cluster import Authority  # noqa: E402
from free_port import free_port  # noqa: E402
from trainer_server import TrainerServer  # noqa: E402

ELASTIC = str(BUILD / "examples" / "elastic")
WARNING = "cannot report the job's status to TrainJob's server"
WAITS = 'until [ -e "$0" ]; do sleep 0.02; done'


def metrics(report):
    return {m["name"]: m["value"] for m in report["metrics"]}


def shell(server, text, *args, options=(), **env):
    return crun(*options, "--no-python", "sh", "-c", text, *args,
                env=clean_env(**{**server.env, **env}))


def test_begin_and_success_are_reported(tmp):
    with TrainerServer(tmp) as server:
        done = shell(server, "exit 0", options=["--nproc-per-node=2"])
        last = server.reports[-1]
    assert done.returncode == 0 and WARNING not in done.stderr, done
    assert set(server.statuses) == {200}, server.statuses
    assert last["progressPercentage"] == 100 and last["estimatedRemainingSeconds"] == 0, last
    assert metrics(last) == {"crun_round": "0", "crun_restarts": "0", "crun_workers": "2"}, last


def test_steps_become_progress(tmp):
    with TrainerServer(tmp) as server:
        env = clean_env(**server.env, CRUN_TRAINJOB_STEPS=1000000, CRUN_TRAINJOB_INTERVAL=0.1,
                        OMP_NUM_THREADS=1)
        job = start([CRUN, "--nproc-per-node=2", ELASTIC, "1000000", "--pace-ms", "5"], env=env)
        try:
            report = wait_for(lambda: next((r for r in server.reports
                                            if "estimatedRemainingSeconds" in r), None),
                              "a report with an estimate")
        finally:
            kill(job)
            job.communicate()
    assert report["progressPercentage"] == 0, report
    # a step takes 5 ms or more, so 1,000,000 steps take 5,000 s at least
    assert report["estimatedRemainingSeconds"] > 4000, report
    assert 0 < int(metrics(report)["crun_steps"]) < 1000000, report
    assert 0 < float(metrics(report)["crun_steps_per_second"]) < 400, report


def test_a_restart_is_reported(tmp):
    with TrainerServer(tmp) as server:
        done = shell(server, 'test "$TORCHELASTIC_RESTART_COUNT" = 1', options=["--max-restarts=1"],
                     CRUN_TRAINJOB_STEPS=10)
    assert done.returncode == 0, done
    assert metrics(server.reports[-1])["crun_restarts"] == "1", server.reports


def test_only_group_rank_0_reports(tmp):
    port, procs = free_port(), []
    with TrainerServer(tmp) as server:
        for name in ("a", "b"):
            env = clean_env(**server.env)
            if name == "b":  # the node that does not lead would warn if it sent a report
                env["KUBEFLOW_TRAINER_SERVER_TOKEN"] = str(tmp / "missing")
            procs.append(start([CRUN, "--nnodes=2", f"--node-rank={len(procs)}",
                                f"--master-port={port}", "--no-python", "true"], env=env))
        ends = [(p.communicate()[1], p.returncode) for p in procs]
    assert [status for _, status in ends] == [0, 0], ends
    assert all(WARNING not in err for err, _ in ends), ends
    assert server.reports[-1]["progressPercentage"] == 100, server.reports
    assert metrics(server.reports[-1])["crun_workers"] == "2", server.reports


def test_a_refused_token_costs_one_warning_and_a_new_token_is_read(tmp):
    flag = tmp / "go"
    with TrainerServer(tmp) as server:
        server.token = "token-2"
        env = clean_env(**server.env, CRUN_TRAINJOB_INTERVAL=0.05, LOGLEVEL="INFO")
        job = start([CRUN, "--no-python", "sh", "-c", WAITS, flag], env=env)
        try:
            wait_for(lambda: server.statuses.count(403) > 2, "three refusals")
            (tmp / "new").write_text("token-2\n")  # crun must not read half a token
            (tmp / "new").rename(server.token_file)
            wait_for(lambda: server.reports, "an accepted report")
            flag.touch()
            err = job.communicate()[1]
        finally:
            kill(job)
    assert job.returncode == 0, err
    assert err.count(WARNING) == 1 and "HTTP 403: Forbidden; the job goes on" in err, err
    assert "takes the job's status again" in err, err


def test_a_silent_server_does_not_hold_the_job(tmp):
    with TrainerServer(tmp) as server:
        server.is_silent = True
        done = shell(server, "exit 0")
        assert server.arrived.is_set()
    assert done.returncode == 0 and done.stderr.count(WARNING) == 1, done
    assert "no answer in time" in done.stderr, done


def test_a_stranger_with_another_certificate_gets_no_token(tmp):
    other = Authority(tmp / "other", "other")
    with TrainerServer(tmp) as server:
        done = shell(server, "exit 0", KUBEFLOW_TRAINER_SERVER_CA_CERT=other.cert)
    assert done.returncode == 0 and done.stderr.count(WARNING) == 1, done
    assert server.statuses == [], server.statuses


def test_a_job_that_fails_has_its_own_status(tmp):
    with TrainerServer(tmp) as server:
        done = shell(server, "exit 7")
    assert done.returncode == 1 and "exitcode  : 7" in done.stderr, done
    assert all("progressPercentage" not in r for r in server.reports), server.reports


def test_nothing_is_sent_unless_asked_for(tmp):
    with TrainerServer(tmp) as server:
        done = [shell(server, "exit 0", CRUN_TRAINJOB_STATUS=value) for value in (None, "0")]
        done.append(shell(server, "exit 0", TORCHELASTIC_RUN_ID="outer"))
    assert [d.returncode for d in done] == [0, 0, 0], done
    assert server.statuses == [], server.statuses


def test_unusable_variables_are_named(tmp):
    with TrainerServer(tmp) as server:
        url = server.env["KUBEFLOW_TRAINER_SERVER_URL"]
        plain = shell(server, "exit 0",
                      KUBEFLOW_TRAINER_SERVER_URL=url.replace("https", "http"))
        missing = shell(server, "exit 0", KUBEFLOW_TRAINER_SERVER_URL=None)
        no_token = shell(server, "exit 0", KUBEFLOW_TRAINER_SERVER_TOKEN=tmp / "missing")
        steps = shell(server, "exit 0", CRUN_TRAINJOB_STEPS="many")
    assert server.statuses == [], server.statuses
    assert plain.returncode == 0 and "is not an https URL" in plain.stderr, plain
    assert missing.returncode == 0 and "feature gate TrainJobStatus" in missing.stderr, missing
    assert no_token.returncode == 0 and "cannot read the token file" in no_token.stderr, no_token
    assert steps.returncode == 2 and "CRUN_TRAINJOB_STEPS: 'many'" in steps.stderr, steps


if __name__ == "__main__":
    if shutil.which("openssl") is None:
        skip("openssl is not installed; it makes the certificates of the stand-in")
    run_tests(globals())
