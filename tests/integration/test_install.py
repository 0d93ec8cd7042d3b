#!/usr/bin/env python3
"""make install gives a tree that a program can be built against; make uninstall leaves it empty."""
import os
import shutil
import subprocess

from crun_test import BUILD, ROOT, clean_env, run, run_tests, skip

PROGRAM = r"""
#include <crunrt.h>
#include <stdio.h>
int main(void) { printf("%s\n", crunrt_version()); return 0; }
"""


def make(*args):
    env = clean_env()
    env.pop("MAKEFLAGS", None)
    build = os.path.relpath(BUILD, ROOT)
    sanitize = {"build/asan": "address", "build/tsan": "thread"}.get(build)
    done = run(["make", "-s", f"BUILD={build}", *([f"SANITIZE={sanitize}"] if sanitize else []),
                *(["COVERAGE=1"] if build == "build/coverage" else []), *args],
               cwd=ROOT, env=env, timeout=900)
    assert done.returncode == 0, done
    return done


def files_below(folder):
    return sorted(os.path.relpath(os.path.join(at, name), folder)
                  for at, folders, names in os.walk(folder) for name in names + folders)


def test_install_build_against_it_uninstall(tmp):
    root = tmp / "root"
    make("install", f"DESTDIR={root}", "PREFIX=/opt/crun", "PROGRAM_PREFIX=elastic-")
    there = files_below(root / "opt" / "crun")
    for wanted in ("bin/elastic-crun", "bin/elastic-crun-store", "lib/libcrunrt.so", "lib/libcrunrt.a",
                   "include/crunrt.h", "lib/pkgconfig/crunrt.pc", "share/man/man1/elastic-crun.1"):
        assert wanted in there, (wanted, there)
    make("uninstall", f"DESTDIR={root}", "PREFIX=/opt/crun", "PROGRAM_PREFIX=elastic-")
    assert not root.exists() or files_below(root) == [], files_below(root)


def test_consumer_through_pkg_config(tmp):
    if BUILD.name in ("asan", "tsan"):
        return  # a plain consumer cannot load a sanitizer's library
    make("install", f"PREFIX={tmp}/usr")
    (tmp / "consumer.c").write_text(PROGRAM)
    env = clean_env(PKG_CONFIG_PATH=f"{tmp}/usr/lib/pkgconfig")
    flags = run(["pkg-config", "--cflags", "--libs", "crunrt"], env=env)
    assert flags.returncode == 0, flags
    for compiler in (["cc", "-std=c11", "-pedantic", "-Wall", "-Wextra", "-Werror"],
                     ["c++", "-x", "c++", "-Wall", "-Wextra", "-Werror"]):
        built = run([*compiler, tmp / "consumer.c", "-o", tmp / "consumer", *flags.stdout.split()])
        assert built.returncode == 0, built
        ran = run([tmp / "consumer"], env=clean_env(LD_LIBRARY_PATH=f"{tmp}/usr/lib"))
        assert ran.returncode == 0 and ran.stdout.strip()[0].isdigit(), ran
    static = run(["cc", tmp / "consumer.c", "-o", tmp / "static", f"-I{tmp}/usr/include",
                  f"{tmp}/usr/lib/libcrunrt.a", "-ldl", "-pthread"])
    assert static.returncode == 0, static
    assert run([tmp / "static"]).returncode == 0


if __name__ == "__main__":
    if shutil.which("pkg-config") is None:
        skip("no pkg-config")
    run_tests(globals())
