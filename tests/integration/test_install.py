#!/usr/bin/env python3
# timeout: 300
"""make install gives a tree that a program can be built against; make uninstall leaves it empty."""
import os
import shutil

from crun_test import BUILD, ROOT, clean_env, run, run_tests, skip

PROGRAM = r"""
#include <crunrt.h>
#include <stdio.h>
int main(void) { printf("%s\n", crunrt_version()); return 0; }
"""


def make(*args):
    """Runs make. It must rebuild nothing, because other tests use the build folder meanwhile."""
    env = clean_env(MAKEFLAGS=None, MAKELEVEL=None)
    done = run(["make", "-s", f"BUILD={os.path.relpath(BUILD, ROOT)}", *args], cwd=ROOT, env=env)
    assert done.returncode == 0, done
    return done


def files_below(folder):
    return sorted(os.path.relpath(os.path.join(at, name), folder)
                  for at, folders, names in os.walk(folder) for name in names + folders)


def test_uninstall_leaves_an_empty_tree(tmp):
    root = tmp / "root"
    where = (f"DESTDIR={root}", "PREFIX=/opt/crun", "PROGRAM_PREFIX=elastic-")
    make("install-only", *where)
    make("install-only", *where)  # again, over itself
    there = files_below(root / "opt" / "crun")
    for wanted in ("bin/elastic-crun", "bin/elastic-crun-store", "lib/libcrunrt.so",
                   "lib/libcrunrt.a",
                   "include/crunrt.h", "lib/pkgconfig/crunrt.pc", "share/man/man1/elastic-crun.1",
                   "share/bash-completion/completions/elastic-crun"):
        assert wanted in there, (wanted, there)
    completion = root / "opt/crun/share/bash-completion/completions/elastic-crun"
    assert " elastic-crun\n" in completion.read_text(), "completes another command"
    make("uninstall", *where)
    assert files_below(root) == [], files_below(root)


def test_uninstall_leaves_what_was_there(tmp):
    before = ["bin", "bin/neighbour", "lib", "share"]
    for name in ("bin", "lib", "share"):
        (tmp / name).mkdir()
    (tmp / "bin" / "neighbour").write_text("not ours")
    make("install-only", f"PREFIX={tmp}")
    assert (tmp / "bin" / "crun").exists()
    make("uninstall", f"PREFIX={tmp}")
    assert files_below(tmp) == before, files_below(tmp)


def test_does_not_overwrite_the_oci_runtime(tmp):
    (tmp / "bin").mkdir()
    (tmp / "bin" / "crun").write_text("the OCI runtime")
    env = clean_env(MAKEFLAGS=None, MAKELEVEL=None)
    done = run(["make", "-s", f"BUILD={os.path.relpath(BUILD, ROOT)}", "install-only",
                f"PREFIX={tmp}"],
               cwd=ROOT, env=env)
    assert done.returncode != 0 and "PROGRAM_PREFIX" in done.stderr, done
    assert (tmp / "bin" / "crun").read_text() == "the OCI runtime"
    make("install-only", f"PREFIX={tmp}", "PROGRAM_PREFIX=elastic-")
    assert (tmp / "bin" / "elastic-crun").exists()
    make("uninstall", f"PREFIX={tmp}")
    assert files_below(tmp) == ["bin", "bin/crun"], files_below(tmp)


def test_consumer_through_pkg_config(tmp):
    if BUILD.name in ("asan", "tsan", "ubsan", "coverage"):
        return  # a plain consumer cannot load a sanitizer's library
    make("install-only", f"PREFIX={tmp}/usr")
    (tmp / "consumer.c").write_text(PROGRAM)
    env = clean_env(PKG_CONFIG_PATH=f"{tmp}/usr/lib/pkgconfig")
    flags = run(["pkg-config", "--cflags", "--libs", "crunrt"], env=env)
    assert flags.returncode == 0, flags
    for compiler in (["cc", "-std=c11", "-pedantic", "-Wall", "-Wextra", "-Werror"],
                     ["c++", "-x", "c++", "-Wall", "-Wextra", "-Werror"]):
        built = run([*compiler, tmp / "consumer.c", "-o", tmp / "consumer", *flags.stdout.split()])
        assert built.returncode == 0, built
        ran = run([tmp / "consumer"],
                  env=clean_env(LD_LIBRARY_PATH=None))  # as docs/worker-runtime.md has it
        assert ran.returncode == 0 and ran.stdout.strip()[0].isdigit(), ran
    static = run(["cc", tmp / "consumer.c", "-o", tmp / "static", f"-I{tmp}/usr/include",
                  f"{tmp}/usr/lib/libcrunrt.a", "-ldl", "-pthread"])
    assert static.returncode == 0, static
    assert run([tmp / "static"]).returncode == 0


if __name__ == "__main__":
    if shutil.which("pkg-config") is None:
        skip("no pkg-config")
    run_tests(globals())
