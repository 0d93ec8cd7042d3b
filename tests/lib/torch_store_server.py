"""A torch TCPStore server: it prints its port, and ends when its stdin is closed. argv[1] is the
value of use_libuv, 0 or 1."""
import datetime
import sys

import torch.distributed as dist

more = {"use_libuv": sys.argv[1] == "1"} if len(sys.argv) > 1 else {}
store = dist.TCPStore("127.0.0.1", 0, None, True, datetime.timedelta(seconds=60), **more)
print(store.port, flush=True)
sys.stdin.read()
