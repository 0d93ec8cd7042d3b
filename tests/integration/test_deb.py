#!/usr/bin/env python3
# timeout: 900
"""make deb gives a Debian package that installs into a fresh Debian beside the OCI runtime crun,
and works there; removing it leaves the other crun. debootstrap fills the fresh Debian once, in
build/deb-root; the test works in a copy."""
import os
import pathlib
import re
import shutil
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
from crun_test import BUILD, ROOT, clean_env, run, run_tests, skip  # noqa: E402

if BUILD.name in ("asan", "tsan", "ubsan", "coverage"):
    skip("packages are made of the plain build")
for tool in ("dpkg-deb", "dpkg"):
    if shutil.which(tool) is None:
        skip(f"{tool} is not here")

FRESH = ROOT / "build" / "deb-root"


def make_deb():
    env = clean_env(MAKEFLAGS=None, MAKELEVEL=None)
    done = run(["make", "-s", "deb"], cwd=ROOT, env=env, timeout=500)
    if "is missing (Debian: " in done.stderr:
        skip(done.stderr.strip().splitlines()[0])
    assert done.returncode == 0, done
    return ROOT / re.search(r"^(\S+\.deb): ", done.stdout, re.M).group(1)


def release():
    text = pathlib.Path("/etc/os-release").read_text()
    return re.search(r"^VERSION_CODENAME=(\w+)", text, re.M)


def fresh_debian(tmp):
    """Returns the folder of a new Debian with the OCI runtime crun, of this machine's release."""
    if os.geteuid() != 0 or shutil.which("debootstrap") is None or release() is None:
        skip("a fresh Debian needs root and debootstrap")
    if not (FRESH / "usr/bin/crun").exists():
        shutil.rmtree(FRESH, ignore_errors=True)
        done = run(["debootstrap", "--variant=minbase", "--include=crun,libuv1,python3",
                    release().group(1), FRESH], timeout=600)
        if done.returncode != 0:
            shutil.rmtree(FRESH, ignore_errors=True)
            skip(f"debootstrap cannot fill a folder: {done.stdout.strip().splitlines()[-1:]}")
    root = tmp / "root"
    subprocess.run(["cp", "-a", FRESH, root], check=True)
    return root


def inside(root, *argv):
    return run(["chroot", root, *argv], env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
                                             "HOME": "/root", "LC_ALL": "C"})


def test_contents(tmp):
    deb = make_deb()
    run(["dpkg-deb", "-x", deb, tmp])
    for path in ("usr/bin/crun-launcher", "usr/bin/crun-store", "usr/lib/libcrunrt.so.0",
                 "usr/lib/crun-launcher/bin/torchrun", "usr/lib/systemd/system/crun-agent.service",
                 "usr/lib/systemd/system/crun-agent-jobs.service",
                 "usr/share/man/man1/crun-launcher.1.gz", "usr/share/man/man3/crunrt.3.gz",
                 "usr/share/bash-completion/completions/crun-launcher",
                 "usr/share/zsh/vendor-completions/_crun-launcher",
                 "usr/share/fish/vendor_completions.d/crun-launcher.fish"):
        assert (tmp / path).exists(), path
    assert not (tmp / "usr/bin/crun").exists(), "takes the name of the OCI runtime"
    text = (tmp / "usr/share/bash-completion/completions/crun-launcher").read_text()
    assert text.endswith(" crun-launcher\n"), text[-60:]
    for shell, path in (("zsh", "zsh/vendor-completions/_crun-launcher"),
                        ("fish", "fish/vendor_completions.d/crun-launcher.fish")):
        if shutil.which(shell):
            done = run([shell, "-n", tmp / "usr/share" / path])
            assert done.returncode == 0, done
    if shutil.which("fish"):
        done = run(["fish", "-c", f"source {tmp}/usr/share/fish/vendor_completions.d/"
                    "crun-launcher.fish; complete -C 'crun-launcher --max-r'"])
        assert "--max-restarts" in done.stdout, done
    secrets = run(["grep", "-rlaF", str(ROOT), tmp])
    assert secrets.stdout == "", f"files name this machine's folders: {secrets.stdout}"


JOB = "import crunrt; print('rank', crunrt.init().rank, crunrt.step())"


def test_beside_the_oci_runtime(tmp):
    deb = make_deb()
    root = fresh_debian(tmp)
    shutil.copy(deb, root / "crun.deb")
    (root / "job.py").write_text(JOB)
    done = inside(root, "dpkg", "-i", "/crun.deb")
    assert done.returncode == 0, done
    assert (root / "usr/bin/crun").read_bytes() == (FRESH / "usr/bin/crun").read_bytes()
    for program in ("crun-launcher", "crun-store", "crun-agent",
                    "/usr/lib/crun-launcher/bin/torchrun"):
        assert inside(root, program, "--version").returncode == 0, program
    done = inside(root, "crun-launcher", "--nproc-per-node=2", "/job.py")
    assert done.returncode == 0 and done.stdout.count("None") == 2, done
    done = inside(root, "dpkg", "-r", "crun-launcher")
    assert done.returncode == 0, done
    assert (root / "usr/bin/crun").read_bytes() == (FRESH / "usr/bin/crun").read_bytes()
    assert not (root / "usr/lib/crun-launcher").exists()


if __name__ == "__main__":
    run_tests(globals())
