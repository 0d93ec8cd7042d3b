"""A command for --pair-check: meets the partner at CRUN_PAIR_PORT and exchanges names with it.
Fails if one of the two has the name "bad". Appends "NAME PARTNER" to a file in TEST_DIR, and writes
the port to another one."""
import os
import socket
import sys
import time

NAME = os.environ["TEST_NODE"]
PLACE = (os.environ["CRUN_PAIR_ADDR"], int(os.environ["CRUN_PAIR_PORT"]))


def meet():
    """Returns the connection to the partner. Rank 0 listens; rank 1 tries until rank 0 does."""
    if os.environ["CRUN_PAIR_RANK"] == "0":
        return socket.create_server(("", PLACE[1])).accept()[0]
    while True:
        try:
            return socket.create_connection(PLACE)
        except ConnectionRefusedError:
            time.sleep(0.01)


with meet() as peer:
    peer.sendall(f"{NAME}\n".encode())
    partner = peer.makefile().readline().strip()
with open(os.path.join(os.environ["TEST_DIR"], f"tests.{os.getpid()}"), "a") as f:
    f.write(f"{NAME} {partner}\n")
with open(os.path.join(os.environ["TEST_DIR"], f"port.{os.getpid()}"), "w") as f:
    f.write(str(PLACE[1]))
if "bad" in (NAME, partner):
    print("the cable is broken")
    sys.exit(1)
