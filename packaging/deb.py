#!/usr/bin/env python3
"""Packs the Debian package crun-launcher from a finished build. `make deb` calls it.

    packaging/deb.py --build build/package --version 0.1.0 --out build/dist

The OCI runtime `crun` has the name /usr/bin/crun, so this package installs beside it: the programs
are in /usr/lib/crun-launcher/bin under their own names, with a link `torchrun`; in /usr/bin there
are links crun-launcher, crun-store and crun-agent. Put /usr/lib/crun-launcher/bin first in PATH to
say `crun` and `torchrun`.
"""
import argparse
import gzip
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
HOME = "usr/lib/crun-launcher/bin"
PROGRAMS = ("crun", "crun-store", "crun-agent")
INSTALLED = {"crun": "crun-launcher", "crun-store": "crun-store", "crun-agent": "crun-agent"}

CONTROL = """\
Package: crun-launcher
Version: {version}
Architecture: {architecture}
Maintainer: The crun developers <crun@localhost>
Section: science
Priority: optional
Installed-Size: {size}
Depends: {depends}
Recommends: {recommends}
Description: torchrun-compatible elastic launcher
 Starts the workers of distributed programs, restarts them when workers or
 nodes fail, and has the store and the library (libcrunrt) that they use.
 It is not the OCI runtime of the same name, and installs beside it.
"""


def run(*argv):
    done = subprocess.run([str(a) for a in argv], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"make the package: {' '.join(map(str, argv))}: {done.stderr.strip()}")
    return done.stdout


def put(tree, path, content, mode=0o644):
    target = tree / path
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(content.encode() if isinstance(content, str) else content)
    target.chmod(mode)


def put_binary(tree, path, source):
    put(tree, path, b"", 0o755)
    run("strip", "--strip-unneeded", "-o", tree / path, source)


def package_of(path):
    """Returns the Debian package that a file of this machine is from, or None."""
    for candidate in (path, os.path.realpath(path), re.sub("^/lib/", "/usr/lib/", path),
                      re.sub("^/usr/lib/", "/lib/", path)):
        done = subprocess.run(["dpkg", "-S", candidate], capture_output=True, text=True)
        if done.returncode == 0:
            return done.stdout.split(":")[0]
    return None


def packages_for(files):
    """Returns the packages that hold the libraries which these files name."""
    found = set()
    for file in files:
        needed = set(re.findall(r"NEEDED +(\S+)", run("objdump", "-p", file)))
        for soname, path in re.findall(r"^\s*(\S+) => (/\S+)", run("ldd", file), re.M):
            if soname in needed and package_of(path):
                found.add(package_of(path))
    return found


def add_programs(tree, build):
    for program in PROGRAMS:
        put_binary(tree, f"{HOME}/{program}", build / "bin" / program)
        (tree / "usr/bin").mkdir(parents=True, exist_ok=True)
        (tree / "usr/bin" / INSTALLED[program]).symlink_to(f"../lib/crun-launcher/bin/{program}")
    (tree / HOME / "torchrun").symlink_to("crun")


def add_library(tree, build):
    put_binary(tree, "usr/lib/libcrunrt.so.0", build / "lib" / "libcrunrt.so.0")
    (tree / "usr/lib/libcrunrt.so").symlink_to("libcrunrt.so.0")
    put(tree, "usr/include/crunrt.h", (ROOT / "worker_runtime/include/crunrt.h").read_bytes())
    for module in sorted((build / "lib" / "crunrt").glob("*.so")):
        put_binary(tree, f"usr/lib/crunrt/{module.name}", module)
    package = ROOT / "python" / "crunrt"
    for path in sorted([*package.glob("*.py"), package / "py.typed"]):
        put(tree, f"usr/lib/python3/dist-packages/crunrt/{path.name}", path.read_bytes())


def add_documents(tree):
    for page in sorted((ROOT / "docs").glob("*.[13]")):
        name = f"{INSTALLED.get(page.stem, page.stem)}{page.suffix}"
        put(tree, f"usr/share/man/man{page.suffix[1]}/{name}.gz",
            gzip.compress(page.read_bytes(), mtime=0))
    for program in PROGRAMS:
        name, source = INSTALLED[program], ROOT / "docs" / "completion" / f"{program}.bash"
        put(tree, f"usr/share/bash-completion/completions/{name}", source.read_text().replace(
            f" {program}\n", f" {name}\n"))
        for shell, path in (("zsh", f"zsh/vendor-completions/_{name}"),
                            ("fish", f"fish/vendor_completions.d/{name}.fish")):
            put(tree, f"usr/share/{path}", run(sys.executable, ROOT / "packaging/completion.py",
                                               shell, source, name))
    put(tree, "usr/share/doc/crun-launcher/copyright", (ROOT / "LICENSE").read_bytes())
    for unit in ("crun-agent.service", "crun-agent-jobs.service"):
        text = (ROOT / "operator" / unit).read_text()
        put(tree, f"usr/lib/systemd/system/{unit}",
            text.replace("ExecStart=crun-agent", "ExecStart=/usr/bin/crun-agent"))


def add_control(tree, build, version, architecture):
    programs = [build / "bin" / p for p in PROGRAMS]
    modules = {m.stem: m for m in (build / "lib" / "crunrt").glob("*.so")}
    needed = packages_for([*programs, build / "lib/libcrunrt.so.0", modules["store_host"]])
    wanted = packages_for([m for n, m in modules.items() if n != "store_host"]) - needed
    size = sum(p.lstat().st_size for p in tree.rglob("*")) // 1024
    glibc = max(tuple(map(int, v.split("."))) for f in [*programs, *modules.values()]
                for v in re.findall(r"\bGLIBC_(\d+\.\d+)", run("objdump", "-T", f)))
    depends = [f"libc6 (>= {glibc[0]}.{glibc[1]})", *sorted(needed - {"libc6"})]
    put(tree, "DEBIAN/control", CONTROL.format(
        version=version, architecture=architecture, size=size, depends=", ".join(depends),
        recommends=", ".join(sorted(wanted | {"python3"}))))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--version", required=True)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    args = parser.parse_args()
    if shutil.which("dpkg-deb") is None:
        sys.exit("make the package: dpkg-deb is missing (Debian: dpkg)")
    architecture = run("dpkg", "--print-architecture").strip()
    os.umask(0o022)
    with tempfile.TemporaryDirectory() as folder:
        tree = pathlib.Path(folder, "tree")
        add_programs(tree, args.build)
        add_library(tree, args.build)
        add_documents(tree)
        add_control(tree, args.build, args.version, architecture)
        args.out.mkdir(parents=True, exist_ok=True)
        path = args.out / f"crun-launcher_{args.version}_{architecture}.deb"
        run("dpkg-deb", "--root-owner-group", "--build", tree, path)
    print(f"{path}: {path.stat().st_size / 2**20:.2f} MiB")


if __name__ == "__main__":
    main()
