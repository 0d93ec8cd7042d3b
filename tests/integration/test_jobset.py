#!/usr/bin/env python3
# timeout: 240
"""Tests JobSet's in-place restarts (KEP-467): crun takes part in them against a stand-in for the
API server and JobSet's controller (tests/lib/kube_server.py). The test plays the kubelet, which
starts the container of a pod again when it ends with another status than 0."""
import pathlib
import shutil
import signal
import sys
import threading

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
from crun_test import CRUN, clean_env, crun, kill, run_tests, skip, start  # noqa: E402
from crun_test import TIMEOUT_S, wait_for  # noqa: E402
from free_port import free_port  # noqa: E402
from kube_server import KubeServer  # noqa: E402

SAYS_AND_WAITS = 'echo on >> "$0"; until [ -e "$1" ]; do sleep 0.02; done'


class Pod:
    """One pod with one container, which runs crun."""

    def __init__(self, kube, name, *args, **env):
        self.argv = [CRUN, *map(str, args)]
        self.env = clean_env(**kube.env(name), LOGLEVEL="INFO", **env)
        self.statuses, self.errors = [], []
        self.start()

    def start(self):
        self.process = start(self.argv, env=self.env)

    def end(self):
        """Waits for the end of the container, and returns its exit status."""
        _, err = self.process.communicate(timeout=TIMEOUT_S)
        self.errors.append(err)
        self.statuses.append(self.process.returncode)
        return self.process.returncode

    def live(self):
        """Starts the container again and again, as the kubelet does, until it ends with 0."""
        while self.end() != 0 and len(self.statuses) < 5:
            self.start()

    def text(self):
        return "".join(self.errors)


def one_pod(tmp, kube, name="js-0", **env):
    """Starts a pod whose worker writes to the file out-NAME, and ends when the file go exists."""
    return Pod(kube, name, "--no-python", "sh", "-c", SAYS_AND_WAITS, tmp / f"out-{name}",
               tmp / "go", **env)


def wait_for_worker(tmp, name="js-0", lines=1):
    def said():
        out = tmp / f"out-{name}"
        return out.exists() and len(out.read_text().split()) == lines
    wait_for(said, f"{lines} starts of the worker of {name}")


def finish(tmp, *pods):
    (tmp / "go").touch()
    return [pod.end() for pod in pods]


def close(*pods):
    for pod in pods:
        kill(pod.process)
        pod.process.communicate()


def test_workers_start_when_all_pods_have_come(tmp):
    with KubeServer(tmp, ["js-0", "js-1"]) as kube:
        first = one_pod(tmp, kube)
        wait_for(lambda: ("watch", "jobsets") in kube.calls, "a watch")
        assert kube.attempts() == {"js-0": "0", "js-1": None}, kube.attempts()
        assert kube.status == {} and not (tmp / "out-js-0").exists()
        second = one_pod(tmp, kube, "js-1")
        try:
            wait_for_worker(tmp), wait_for_worker(tmp, "js-1")
            assert finish(tmp, first, second) == [0, 0], (first.text(), second.text())
        finally:
            close(first, second)
    assert kube.status == {"currentInPlaceRestartAttempt": 0} and kube.lifted == [0], kube.status
    assert "in-place attempt 0 of JobSet 'js' starts" in first.text(), first.text()


def test_a_failed_pod_restarts_all_in_place(tmp):
    """A job of two nodes; the worker of the second node fails once."""
    port, program = free_port(), tmp / "work.sh"
    program.write_text('if [ -e "$0.failed" ]; then echo >> "$0.done"; exit 0; fi\n'
                       'if [ $RANK = 1 ]; then\n'
                       '    until [ -e "$0.rank0" ]; do sleep 0.05; done\n'
                       '    touch "$0.failed"; exit 3\n'
                       'fi\n'
                       'touch "$0.rank0"\n'
                       'while :; do sleep 0.05; done\n')
    with KubeServer(tmp, ["js-0", "js-1"]) as kube:
        pods = [Pod(kube, f"js-{i}", "--nnodes=2", f"--node-rank={i}", f"--master-port={port}",
                    "--max-restarts=0", "--no-python", "sh", program,
                    IN_PLACE_RESTART_EXIT_CODE=77) for i in range(2)]
        try:
            lives = [threading.Thread(target=pod.live) for pod in pods]
            for life in lives:
                life.start()
            for life in lives:
                life.join()
        finally:
            close(*pods)
    assert (tmp / "work.sh.done").read_text().count("\n") == 2, pods[0].text()
    assert all(p.statuses[-1] == 0 and len(p.statuses) == 2 for p in pods), [
        (p.statuses, p.text()) for p in pods]
    assert kube.lifted == [0, 1] and not kube.has_failed, kube.lifted
    assert kube.status == {"currentInPlaceRestartAttempt": 1,
                           "previousInPlaceRestartAttempt": 0}, kube.status


def test_an_outdated_pod_stops_its_workers_and_ends_with_the_agreed_status(tmp):
    for variable, status in (("IN_PLACE_RESTART_EXIT_CODE", 77),
                             ("RESTART_POD_IN_PLACE_EXIT_CODE", 78), (None, 1)):
        folder = tmp / str(status)
        folder.mkdir()
        with KubeServer(folder, ["js-0", "other"]) as kube:
            kube.annotate("other", "0")
            pod = one_pod(folder, kube, **({variable: status} if variable else {}))
            try:
                wait_for_worker(folder)
                kube.annotate("other", "1")  # as its agent does after a restart
                assert pod.end() == status, pod.text()
            finally:
                close(pod)
        assert "this pod restarts in place" in pod.text(), pod.text()


def test_an_outdated_pod_at_the_barrier_restarts_too(tmp):
    with KubeServer(tmp, ["js-0", "other", "late"]) as kube:
        pod = one_pod(tmp, kube, IN_PLACE_RESTART_EXIT_CODE=77)
        try:
            wait_for(lambda: ("watch", "jobsets") in kube.calls, "a watch")
            kube.annotate("other", "1")
            assert pod.end() == 77, pod.text()
        finally:
            close(pod)
    assert not (tmp / "out-js-0").exists()


def test_the_barrier_waits_while_the_api_server_is_away(tmp):
    with KubeServer(tmp, ["js-0"]) as kube:
        kube.stop()
        pod = one_pod(tmp, kube)
        try:
            wait_for(lambda: "the workers have to wait" in pod.process.stderr.readline(),
                     "a warning")
            assert pod.process.poll() is None and not (tmp / "out-js-0").exists()
            kube.begin()
            wait_for_worker(tmp)
            assert finish(tmp, pod) == [0], pod.text()
        finally:
            close(pod)
    assert "cannot" not in pod.text() and "answers again" in pod.text(), pod.text()


def outdate(kube, pod):
    """Makes the running pod outdated, and checks that it notices."""
    kube.annotate("other", "1")
    assert pod.end() == 77, pod.text()


def running_pod(tmp, kube):
    kube.annotate("other", "0")
    pod = one_pod(tmp, kube, IN_PLACE_RESTART_EXIT_CODE=77)
    wait_for_worker(tmp)
    wait_for(lambda: kube.watches, "a watch")
    return pod


def test_a_running_job_outlives_an_api_server_that_is_away(tmp):
    with KubeServer(tmp, ["js-0", "other"]) as kube:
        pod = running_pod(tmp, kube)
        try:
            kube.stop()
            wait_for(lambda: "the workers run on" in pod.process.stderr.readline(), "a warning")
            assert pod.process.poll() is None
            kube.begin()
            outdate(kube, pod)
        finally:
            close(pod)


def test_a_lost_watch_is_begun_again(tmp):
    with KubeServer(tmp, ["js-0", "other"]) as kube:
        pod = running_pod(tmp, kube)
        try:
            for _ in range(2):
                calls = kube.calls.count(("watch", "jobsets"))
                kube.cut_watches()
                wait_for(lambda: kube.calls.count(("watch", "jobsets")) > calls and kube.watches,
                         "a new watch")
            outdate(kube, pod)
        finally:
            close(pod)


def test_a_version_that_is_gone_is_read_again(tmp):
    for by_status in (False, True):
        folder = tmp / str(by_status)
        folder.mkdir()
        with KubeServer(folder, ["js-0", "other"]) as kube:
            kube.gone_by_status = by_status
            pod = running_pod(folder, kube)
            reads = kube.calls.count(("get", "jobsets"))
            try:
                kube.forget()
                if by_status:
                    kube.cut_watches()
                wait_for(lambda: kube.calls.count(("get", "jobsets")) > reads and kube.watches,
                         "a new watch after a read")
                outdate(kube, pod)
            finally:
                close(pod)


def test_a_change_between_two_watches_is_not_missed(tmp):
    """The API server ends the watch at its time limit, and the JobSet changes before the next watch
    begins. The next watch begins at the version that the pod has seen, so it reports the change."""
    with KubeServer(tmp, ["js-0", "other"]) as kube:
        pod = running_pod(tmp, kube)
        try:
            kube.bookmark()
            with kube.changed:
                kube.ends_watches = True
                kube.changed.notify_all()
            wait_for(lambda: not kube.watches, "the end of the watch")
            kube.annotate("other", "1")
            assert pod.end() == 77, pod.text()
        finally:
            close(pod)


def test_missing_rights_are_named_once_and_tried_again(tmp):
    for verb, resource in (("get", "jobsets"), ("patch", "pods"), ("watch", "jobsets")):
        folder = tmp / verb
        folder.mkdir()
        with KubeServer(folder, ["js-0", "other"]) as kube:
            kube.forbid(verb, resource)
            pod = one_pod(folder, kube)
            try:
                wait_for(lambda: kube.calls.count((verb, resource)) > 2, "three tries")
                assert not (folder / "out-js-0").exists()
                kube.allow_all()
                wait_for(lambda: kube.attempts()["js-0"] == "0", "the annotation")
                kube.annotate("other", "0")
                wait_for_worker(folder)
                assert finish(folder, pod) == [0], pod.text()
            finally:
                close(pod)
        assert pod.text().count("only the first of several failures") == 1, pod.text()
        assert f"{resource} is forbidden" in pod.text(), pod.text()
        assert "needs the verbs" in pod.text(), pod.text()


def test_a_renewed_token_is_read(tmp):
    with KubeServer(tmp, ["js-0"]) as kube:
        kube.token = "token-2"
        pod = one_pod(tmp, kube)
        try:
            wait_for(lambda: len(kube.calls) > 1, "a refused call")
            (kube.folder / "token").write_text("token-2\n")
            wait_for_worker(tmp)
            assert finish(tmp, pod) == [0], pod.text()
        finally:
            close(pod)


def test_an_annotation_without_an_answer_keeps_its_number(tmp):
    """The API server carries the patch out, and the connection is lost before the answer. When the
    pod tries again, the JobSet has the new attempt already: the pod must not take a further one."""
    with KubeServer(tmp, ["js-0"]) as kube:
        kube.loses_answers = 1
        pod = one_pod(tmp, kube)
        try:
            wait_for_worker(tmp)
            assert finish(tmp, pod) == [0], pod.text()
        finally:
            close(pod)
    assert kube.attempts() == {"js-0": "0"} and kube.lifted == [0], kube.attempts()


def test_a_jobset_that_recreates_its_pods_is_left_alone(tmp):
    for strategy, notes in (("Recreate", {}), ("InPlaceRestart", {
            "jobset.sigs.k8s.io/disable-in-place-restart": ""})):
        folder = tmp / strategy
        folder.mkdir()
        with KubeServer(folder, ["js-0", "js-1"], strategy=strategy) as kube:
            kube.notes = notes
            done = crun("--no-python", "true",
                        env=clean_env(**kube.env("js-0"), LOGLEVEL="INFO"))
        assert done.returncode == 0 and "does not restart in place" in done.stderr, done
        assert kube.attempts()["js-0"] is None, kube.attempts()


def test_a_signal_ends_the_wait(tmp):
    with KubeServer(tmp, ["js-0", "js-1"]) as kube:
        pod = one_pod(tmp, kube)
        try:
            wait_for(lambda: ("watch", "jobsets") in kube.calls, "a watch")
            pod.process.send_signal(signal.SIGTERM)
            assert pod.end() == -signal.SIGTERM, pod.text()
        finally:
            close(pod)


def test_nothing_is_done_unless_asked_for(tmp):
    with KubeServer(tmp, ["js-0"]) as kube:
        for change in ({"CRUN_JOBSET_IN_PLACE": None}, {"CRUN_JOBSET_IN_PLACE": "0"},
                       {"TORCHELASTIC_RUN_ID": "outer"}):
            done = crun("--no-python", "true", env=clean_env(**{**kube.env("js-0"), **change}))
            assert done.returncode == 0, done
    assert kube.calls == [], kube.calls


def test_unusable_variables_are_named(tmp):
    with KubeServer(tmp, ["js-0"]) as kube:
        for change, text in (({"POD_NAME": None}, "needs POD_NAME"),
                             ({"JOBSET_NAME": "a/b"}, "JOBSET_NAME: 'a/b'"),
                             ({"CRUN_JOBSET_IN_PLACE": "yes"}, "neither 0 nor 1"),
                             ({"CRUN_SERVICE_ACCOUNT": tmp}, "cannot read the pod's namespace"),
                             ({"KUBERNETES_SERVICE_HOST": None}, "KUBERNETES_SERVICE_HOST"),
                             ({"KUBERNETES_SERVICE_PORT": "x"}, "are no address"),
                             ({"IN_PLACE_RESTART_EXIT_CODE": "0"}, "from 1 to 255")):
            done = crun("--no-python", "true", env=clean_env(**{**kube.env("js-0"), **change}))
            assert done.returncode == 2 and text in done.stderr, (change, done)
    assert kube.calls == [], kube.calls


if __name__ == "__main__":
    if shutil.which("openssl") is None:
        skip("openssl is not installed; it makes the certificates of the stand-in")
    run_tests(globals())
