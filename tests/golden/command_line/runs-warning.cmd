crun --nproc-per-node=2 -r 3 --log-dir=logs ./hello
