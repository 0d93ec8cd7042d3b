"""Lets crun read the Python stacks of its workers without py-spy: registers Python's faulthandler
for a signal. crun_stacks.pth calls register() when the interpreter of a worker starts.

crun-agent why and crun --hang-timeout send the signal to a worker that waits, and faulthandler then
writes the stacks of all threads to a file in memory. crun finds this file, and the number of the
signal, by the name of the file (inspect/faulthandler.c).
"""
import faulthandler
import os

# SIGRTMIN + 6, because libcrunrt uses SIGRTMIN + 5. The number stands here because it would take
# milliseconds to import `signal`.
SIGNAL = 40


def register():
    """Registers faulthandler; does nothing if Python or the kernel lacks support, as Python 3.7."""
    try:
        # the descriptor stays open until the process ends
        file = os.memfd_create(f"crun-python-stacks-{SIGNAL}")
        faulthandler.register(SIGNAL, file, all_threads=True)
    except (AttributeError, OSError, RuntimeError, ValueError):
        pass
