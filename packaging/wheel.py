#!/usr/bin/env python3
"""Packs the wheel crun-launcher from a finished build: the programs, libcrunrt with its modules,
the Python package crunrt, manual pages and completions. `make wheel` calls it.

    packaging/wheel.py --build build/wheel --version 0.1.0 --machine x86_64 --out build/dist

The wheel needs no interpreter version and no compiler (tag py3-none). Its platform tag names the
oldest glibc that has every symbol version which the files in it need. Shared libraries that the
Gloo module needs and that hosts may lack are put beside it. Equal inputs give equal bytes.
"""
import argparse
import base64
import hashlib
import pathlib
import re
import subprocess
import sys
import tempfile
import zipfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
NAME = "crun_launcher"
PROGRAMS = ("crun", "crun-store", "crun-agent")
MODULES = ("gloo.so", "nccl.so", "store_host.so", "torch_gloo.so")
# Libraries that every host has: glibc's, and the run-time library of C++.
ON_EVERY_HOST = re.compile(r"^(lib(c|m|dl|pthread|rt|gcc_s|stdc\+\+)\.so|ld-linux|linux-vdso)")
STAMP = (2026, 1, 1, 0, 0, 0)  # the time of every file in the wheel

METADATA = """\
Metadata-Version: 2.1
Name: crun-launcher
Version: {version}
Summary: torchrun-compatible elastic launcher in C, and its worker runtime for Python
Requires-Python: >=3.8
License-File: LICENSE
Classifier: Operating System :: POSIX :: Linux
Classifier: Programming Language :: Python :: 3
Description-Content-Type: text/markdown

{description}
"""


def run(*argv):
    done = subprocess.run(argv, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"make the wheel: {' '.join(map(str, argv))}: {done.stderr.strip()}")
    return done.stdout


class Wheel:
    """The files of the wheel: path in it, bytes, and whether it is a program."""

    def __init__(self, version, strip, objdump):
        self.version, self.strip, self.objdump = version, strip, objdump
        self.files, self.glibc = [], (2, 17)
        self.data, self.info = f"{NAME}-{version}.data", f"{NAME}-{version}.dist-info"

    def add(self, path, content, is_program=False):
        data = content.encode() if isinstance(content, str) else content
        self.files.append((str(path), data, is_program))

    def add_binary(self, path, source, is_program=False):
        """Adds a stripped copy of an ELF file, and notes which glibc it needs."""
        with tempfile.TemporaryDirectory() as folder:
            copy = pathlib.Path(folder, "stripped")
            run(self.strip, "--strip-unneeded", "-o", copy, source)
            for major, minor in re.findall(r"\bGLIBC_(\d+)\.(\d+)", run(self.objdump, "-T", copy)):
                self.glibc = max(self.glibc, (int(major), int(minor)))
            self.add(path, copy.read_bytes(), is_program)

    def record(self):
        lines = []
        for path, data, _ in self.files:
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            lines.append(f"{path},sha256={digest},{len(data)}\n")
        return "".join(lines) + f"{self.info}/RECORD,,\n"

    def write(self, folder, tag):
        self.add(f"{self.info}/WHEEL", f"Wheel-Version: 1.0\nGenerator: crun\n"
                 f"Root-Is-Purelib: false\nTag: {tag}\n")
        self.add(f"{self.info}/RECORD", self.record())
        path = folder / f"{NAME}-{self.version}-{tag}.whl"
        folder.mkdir(parents=True, exist_ok=True)
        for older in folder.glob(f"{NAME}-*_{tag.split('_', 3)[-1]}.whl"):
            older.unlink()
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
            for name, data, is_program in self.files:
                info = zipfile.ZipInfo(name, STAMP)
                info.compress_type = zipfile.ZIP_DEFLATED
                info.external_attr = (0o100755 if is_program else 0o100644) << 16
                archive.writestr(info, data)
        return path


def libraries_of(objdump, path):
    """Returns {soname: path} of what the file needs beyond what every host has, and what these
    libraries need in turn."""
    found = {}
    for line in run("ldd", path).splitlines():
        match = re.match(r"\s*(\S+) => (/\S+)", line)
        if match and not ON_EVERY_HOST.match(match.group(1)):
            found[match.group(1)] = match.group(2)
    return found


def libraries_in(sysroot, objdump, path):
    """Returns what libraries_of() returns, for a file of another machine, whose libraries lie in
    the folder `sysroot`; ldd works only for files of this machine."""
    found = {}
    for soname in re.findall(r"NEEDED +(\S+)", run(objdump, "-p", path)):
        if not ON_EVERY_HOST.match(soname):
            library = next(sysroot.glob(f"usr/lib/*/{soname}"))
            found.update({soname: library, **libraries_in(sysroot, objdump, library)})
    return found


def licences_in(sysroot):
    """Yields (package, text) of the packages that were unpacked into the folder."""
    for path in sorted(sysroot.glob("usr/share/doc/*/copyright")):
        if not path.parent.name.endswith("-dev"):
            yield path.parent.name, path.read_text()


def licence_of(library):
    """Returns (package, text) of the Debian package that a bundled library is from, or None."""
    for path in (library, str(pathlib.Path(library).resolve())):
        for candidate in (path, path.replace("/lib/", "/usr/lib/", 1), path.replace("/usr", "", 1)):
            done = subprocess.run(["dpkg", "-S", candidate], capture_output=True, text=True)
            if done.returncode == 0:
                package = done.stdout.split(":")[0]
                text = pathlib.Path("/usr/share/doc", package, "copyright")
                return (package, text.read_text()) if text.exists() else None
    return None


def add_modules(wheel, build, linked, sysroot):
    """Adds libcrunrt, its modules, and the shared libraries that these need."""
    wheel.add_binary("crunrt/lib/libcrunrt.so.0", build / "lib" / "libcrunrt.so.0")
    bundled = {}
    for name in MODULES:
        module = build / "lib" / "crunrt" / name
        if not module.exists():
            print(f"  the wheel has no {name}: it was not built")
            continue
        wheel.add_binary(f"crunrt/lib/crunrt/{name}", module)
        bundled.update(libraries_in(sysroot, wheel.objdump, module) if sysroot
                       else libraries_of(wheel.objdump, module))
    for soname, path in sorted(bundled.items()):
        wheel.add_binary(f"crunrt/lib/crunrt/bundled/{soname}", pathlib.Path(path).resolve())
    licences = licences_in(sysroot) if sysroot else map(licence_of, [*bundled.values(), *linked])
    for found in licences:
        name = f"{wheel.info}/licenses/{found[0]}.txt" if found else None
        if found and name not in [n for n, _, _ in wheel.files]:
            wheel.add(name, found[1])


def add_package(wheel):
    package = ROOT / "python" / "crunrt"
    for path in sorted(package.rglob("*")):
        if path.suffix == ".py" or path.name == "py.typed":
            wheel.add(f"crunrt/{path.relative_to(package)}", path.read_bytes())
    for name in ("_crun_stacks.py", "crun_stacks.pth", "_crun_torchrun.py", "crun_torchrun.pth"):
        wheel.add(name, (ROOT / "python" / name).read_bytes())


def add_documents(wheel):
    share = f"{wheel.data}/data/share"
    for page in sorted((ROOT / "docs").glob("*.[13]")):
        wheel.add(f"{share}/man/man{page.suffix[1]}/{page.name}", page.read_bytes())
    for file in sorted((ROOT / "docs" / "completion").glob("*.bash")):
        wheel.add(f"{share}/bash-completion/completions/{file.stem}", file.read_bytes())
    wheel.add(f"{wheel.info}/METADATA", METADATA.format(
        version=wheel.version, description=(ROOT / "packaging" / "description.md").read_text()))
    wheel.add(f"{wheel.info}/LICENSE", (ROOT / "LICENSE").read_bytes())


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--version", required=True)
    parser.add_argument("--machine", required=True)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--tools", default="", help="prefix of strip and objdump")
    parser.add_argument("--linked", nargs="*", default=[], help="static libraries in the programs")
    parser.add_argument("--sysroot", type=pathlib.Path,
                        help="folder of another machine's libraries")
    args = parser.parse_args()
    wheel = Wheel(args.version, args.tools + "strip", args.tools + "objdump")
    for program in PROGRAMS:
        wheel.add_binary(f"{wheel.data}/scripts/{program}", args.build / "bin" / program, True)
    add_modules(wheel, args.build, args.linked, args.sysroot)
    add_package(wheel)
    add_documents(wheel)
    tag = f"py3-none-manylinux_{wheel.glibc[0]}_{wheel.glibc[1]}_{args.machine}"
    path = wheel.write(args.out, tag)
    print(f"{path}: {path.stat().st_size / 2**20:.2f} MiB")


if __name__ == "__main__":
    main()
