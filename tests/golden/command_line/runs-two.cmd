OMP_NUM_THREADS=1 crun --nproc-per-node=2 -r 3 --log-dir=logs ./hello && cat logs/*/attempt_0/*/stdout.log
