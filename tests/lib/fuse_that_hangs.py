"""A FUSE file system that answers no request but the first, as a file server that is gone.

    with HangingFuse(folder):
        ...                    # a process that opens folder/x sleeps uninterruptibly

It speaks FUSE's protocol over /dev/fuse, in a process of its own. The end of that process makes the
kernel end all requests with an error, so that the sleeping processes wake up."""
import ctypes
import os
import struct
import subprocess
import sys
import threading

MOUNT_FLAGS = 6  # MS_NOSUID | MS_NODEV
MNT_DETACH = 2
FUSE_INIT = 26
FOLDER_MODE = "40755"  # octal: a folder with the mode 0755


def missing():
    """Returns why this machine cannot run the file system, or None if it can."""
    if os.geteuid() != 0:
        return "only root may mount a FUSE file system by mount(2)"
    try:
        os.close(os.open("/dev/fuse", os.O_RDWR))
    except OSError as error:
        return f"/dev/fuse cannot be opened: {error}"
    return None


def mount(fd, folder):
    libc = ctypes.CDLL(None, use_errno=True)
    options = f"fd={fd},rootmode={FOLDER_MODE},user_id=0,group_id=0,allow_other"
    if libc.mount(b"hangs", os.fsencode(folder), b"fuse", MOUNT_FLAGS, options.encode()) < 0:
        sys.exit(f"mount: {os.strerror(ctypes.get_errno())}")


def answer_init(fd):
    """Answers the kernel's first request with version 7.31 and no features."""
    request = os.read(fd, 1 << 17)
    _, opcode, unique = struct.unpack_from("=IIQ", request)
    assert opcode == FUSE_INIT, opcode
    init = struct.pack("=IIIIHHIIHHIIII", 7, 31, 0, 0, 12, 9, 1 << 16, 1, 32, 0, 0, 0, 0, 0)
    init += bytes(64 - len(init))
    os.write(fd, struct.pack("=IiQ", 16 + len(init), 0, unique) + init)


def serve(folder):
    fd = os.open("/dev/fuse", os.O_RDWR)
    mount(fd, folder)
    answer_init(fd)
    print("mounted", flush=True)
    while True:
        # A request that was read counts as being carried out, so its process cannot be killed any
        # more. It gets no answer. The header has the process's pid after 32 bytes.
        print(*struct.unpack_from("=I", os.read(fd, 1 << 17), 32), flush=True)


class HangingFuse:
    def __init__(self, folder):
        self.folder = folder

    def __enter__(self):
        self.process = subprocess.Popen([sys.executable, __file__, str(self.folder)],
                                        stdout=subprocess.PIPE, text=True)
        said = self.process.stdout.readline()
        assert said == "mounted\n", f"the file system said {said!r}"
        self.readers = set()  # the processes whose requests were read
        threading.Thread(target=self.note_requests, daemon=True).start()
        return self

    def note_requests(self):
        for line in self.process.stdout:
            self.readers.add(int(line))

    def end(self):
        """Ends the file system, which wakes all its users up."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()

    def __exit__(self, *_):
        self.end()
        ctypes.CDLL(None).umount2(os.fsencode(self.folder), MNT_DETACH)


if __name__ == "__main__":
    serve(sys.argv[1])
