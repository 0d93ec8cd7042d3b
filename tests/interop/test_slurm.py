#!/usr/bin/env python3
# timeout: 300
"""crun under a real Slurm: slurmctld and three slurmd in network namespaces. "crun PROGRAM" is the
whole line in srun, in a batch script, and in several tasks per node; a requeued job runs again, and
a preempted or expired job gets notice."""
import pathlib
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
from crun_test import BUILD, CRUN, SCALE, run_tests  # noqa: E402
from netns import Net  # noqa: E402
from slurm import Slurm  # noqa: E402

SHOW = 'echo "rank $RANK of $WORLD_SIZE on $(hostname), local $LOCAL_RANK of $LOCAL_WORLD_SIZE"'


def ranks(text):
    return sorted(line for line in text.splitlines() if line.startswith("rank "))


def batch(slurm, script, *options):
    path = slurm.tmp / "job.sh"
    path.write_text(f"#!/bin/sh\n{script}\n")
    out = slurm.tmp / "job.out"
    out.unlink(missing_ok=True)
    done = slurm.run("sbatch", "--parsable", f"--output={out}", "--chdir=/tmp", *options, path)
    assert done.returncode == 0, done
    return done.stdout.strip(), out


def srun_one_task_per_node(slurm):
    done = slurm.run("srun", "--nodes=3", "--ntasks-per-node=1", CRUN, "--nproc-per-node=2", "sh",
                     "-c", SHOW)
    assert done.returncode == 0, done
    assert ranks(done.stdout) == sorted(
        f"rank {r} of 6 on n{r // 2 + 1}, local {r % 2} of 2" for r in range(6)), done
    lines = [x for x in done.stderr.splitlines() if "from Slurm" in x]
    assert len(lines) == 1 and "3 nodes (SLURM_STEP_NUM_NODES)" in lines[0], done


def srun_several_tasks_per_node(slurm):
    tasks = ("srun", "--nodes=2", "--ntasks-per-node=2", CRUN, "sh", "-c")
    done = slurm.run(*tasks, SHOW)
    assert done.returncode == 0, done
    assert ranks(done.stdout) == sorted(
        f"rank {r} of 4 on n{r // 2 + 1}, local {r % 2} of 2" for r in range(4)), done
    slurm.wait_until_idle()
    done = slurm.run(*tasks, "exit $((RANK == 3 ? 7 : 0))")
    assert done.returncode == 1 and "rank 3" in done.stderr, done
    assert "n1: tasks 0-1: Exited with exit code 1" in done.stderr, done


def a_batch_script_starts_itself_on_all_nodes(slurm):
    job, out = batch(slurm, f"exec {CRUN} sh -c '{SHOW}'", "--nodes=3", "--ntasks-per-node=2")
    assert slurm.wait_for_job(job, {"COMPLETED", "FAILED"}) == "COMPLETED", out.read_text()
    assert ranks(out.read_text()) == sorted(
        f"rank {r} of 6 on n{r // 2 + 1}, local {r % 2} of 2" for r in range(6)), out.read_text()


def a_batch_script_with_a_number_of_tasks(slurm):
    """--ntasks without srun: as many workers on each node as Slurm has put tasks there."""
    for tasks, option in ((6, "--ntasks=6"), (5, "--ntasks=5")):
        job, out = batch(slurm, f"exec {CRUN} sh -c '{SHOW}'", "--nodes=3", option)
        assert slurm.wait_for_job(job, {"COMPLETED", "FAILED"}) == "COMPLETED", out.read_text()
        last = [2, 2, tasks - 4]
        assert ranks(out.read_text()) == sorted(
            f"rank {r} of {tasks} on n{r // 2 + 1}, local {r % 2} of {last[r // 2]}"
            for r in range(tasks)), out.read_text()
    done = slurm.run("srun", "--nodes=3", "--ntasks=5", CRUN, "sh", "-c", SHOW)
    assert done.returncode == 0 and len(ranks(done.stdout)) == 5, done
    assert "2(x2),1 workers on the nodes" in done.stderr, done


def the_jobs_of_an_array_are_jobs_of_their_own(slurm):
    script = f"exec {CRUN} --nproc-per-node=1 sh -c 'echo $TORCHELASTIC_RUN_ID; {SHOW}'"
    job, out = batch(slurm, script, "--nodes=3", "--array=1-2", "--open-mode=append")
    slurm.wait_for("the array", lambda: not slurm.run("squeue", "-h", "-j", job).stdout.strip())
    text = out.read_text()
    assert len(ranks(text)) == 6 and ranks(text)[0] == ranks(text)[1], text
    assert len({line for line in text.splitlines() if line.startswith("slurm-")}) == 2, text


def nodes_authenticate_by_munge(slurm):
    """Without any option or secret, the tasks of a user authenticate by the cluster's MUNGE. If
    munged's socket is missing, as in a container, the job is open and says why, and with
    auth=required it does not start."""
    line, tasks = "the rendezvous is open to its network", ("--nodes=3", "--ntasks-per-node=1")
    done = slurm.run("srun", *tasks, CRUN, "--rdzv-conf=auth=required", "sh", "-c", SHOW)
    assert done.returncode == 0 and len(ranks(done.stdout)) == 3, done
    done = slurm.run("srun", *tasks, CRUN, "sh", "-c", SHOW)
    assert done.returncode == 0 and line not in done.stderr, done
    crun = ("env", "MUNGE_SOCKET=/no/such/socket", CRUN)
    done = slurm.run("srun", *tasks, *crun, "sh", "-c", SHOW)
    assert done.returncode == 0 and done.stderr.count(line) == 1, done
    assert "MUNGE is not used: munged has no socket at '/no/such/socket'" in done.stderr, done
    done = slurm.run("srun", *tasks, *crun, "--rdzv-conf=auth=required", "sh", "-c", SHOW)
    assert done.returncode != 0 and "auth=required" in done.stderr, done


def a_contradiction_is_refused(slurm):
    done = slurm.run("srun", "--nodes=2", "--ntasks-per-node=1", CRUN, "--nnodes=1", "true")
    assert done.returncode == 2 and "train alone" in done.stderr, done
    assert "--nnodes=1" in done.stderr and "SLURM_STEP_NUM_NODES" in done.stderr, done


def a_requeued_job_runs_again(slurm):
    """The first run requeues its own job and waits to be ended; the second one ends well."""
    script = f"""exec {CRUN} --nproc-per-node=1 sh -c '
        echo run ${{SLURM_RESTART_COUNT:-0}} id $TORCHELASTIC_RUN_ID
        [ "${{SLURM_RESTART_COUNT:-0}}" = 1 ] && exit 0
        [ $RANK = 0 ] && scontrol requeue $SLURM_JOB_ID
        exec sleep 1000'"""
    job, out = batch(slurm, script, "--nodes=2", "--ntasks-per-node=1", "--open-mode=append",
                     "--requeue")
    assert slurm.wait_for_job(job, {"COMPLETED", "FAILED"}) == "COMPLETED", out.read_text()
    text = out.read_text()
    assert text.count("run 0 id slurm-") == 2 and text.count("run 1 id slurm-") == 2, text
    assert f"run 1 id slurm-{job}.0-requeue1" in text, text


def the_end_of_the_time_is_announced(slurm):
    """A job of one minute: with a notice of 50 s, the workers hear of the end after 10 s, and the
    job ends long before Slurm would kill it. Slurm before 23.02 does not set SLURM_JOB_END_TIME, so
    the script sets it as later versions do."""
    elastic = BUILD / "examples" / "elastic"
    script = f"""[ -n "$SLURM_JOB_END_TIME" ] || export SLURM_JOB_END_TIME=$(($(date +%s) + 60))
exec {CRUN} --preemption-notice=50 {elastic} 100000000"""
    job, out = batch(slurm, script, "--nodes=2", "--ntasks-per-node=1", "--time=1")
    slurm.wait_for_job(job, {"COMPLETED", "FAILED", "TIMEOUT", "CANCELLED"})
    text = out.read_text()
    assert "SLURM_JOB_END_TIME" in text, text
    assert "TIME LIMIT" not in text, text


def a_preempted_job_gets_notice(slurm):
    """A job of higher priority takes all nodes. Slurm sends SIGTERM to all processes of the
    preempted job, and SIGKILL 40 s later. With SIGTERM as notice, all launchers announce it, and
    the job is gone long before. The worker ignores SIGTERM, as one that wants to save has to."""
    elastic = BUILD / "examples" / "elastic"
    script = f"""exec {CRUN} --preemption-signals=SIGTERM --preemption-notice=30 \\
        sh -c 'trap "" TERM; touch {slurm.tmp}/runs.$RANK; exec {elastic} 100000000'"""
    job, out = batch(slurm, script, "--partition=spot", "--nodes=3", "--ntasks-per-node=1",
                     "--no-requeue")
    slurm.wait_for("three workers", lambda: len(list(slurm.tmp.glob("runs.?"))) == 3)
    began = time.monotonic()
    done = slurm.run("srun", "--partition=high", "--nodes=3", "--ntasks-per-node=1", "hostname")
    took = time.monotonic() - began
    assert done.returncode == 0 and sorted(done.stdout.split()) == ["n1", "n2", "n3"], done
    text = out.read_text()
    assert "CANCELLED" in text, text
    assert text.count("this node leaves the job within 30 s: preemption: SIGTERM") == 3, text
    assert "killed by signal" not in text, text
    assert took < 35 * SCALE, f"{took:.0f} s: the job did not leave before it was killed\n{text}"


def test_slurm(tmp):
    with Net(4, names=["head", "n1", "n2", "n3"]) as net, Slurm(net, tmp) as slurm:
        for case in (srun_one_task_per_node, srun_several_tasks_per_node,
                     nodes_authenticate_by_munge,
                     a_batch_script_starts_itself_on_all_nodes,
                     a_batch_script_with_a_number_of_tasks,
                     the_jobs_of_an_array_are_jobs_of_their_own, a_contradiction_is_refused,
                     a_requeued_job_runs_again, the_end_of_the_time_is_announced,
                     a_preempted_job_gets_notice):
            print(f"{case.__name__} ...", flush=True)
            slurm.wait_until_idle()
            case(slurm)


if __name__ == "__main__":
    run_tests(globals())
