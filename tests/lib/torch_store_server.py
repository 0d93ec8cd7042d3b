"""A torch TCPStore server: prints its port, ends with its stdin. argv[1]: use_libuv 0 or 1."""
import datetime
import sys

import torch.distributed as dist

more = {"use_libuv": sys.argv[1] == "1"} if len(sys.argv) > 1 else {}
store = dist.TCPStore("127.0.0.1", 0, None, True, datetime.timedelta(seconds=60), **more)
print(store.port, flush=True)
sys.stdin.read()
