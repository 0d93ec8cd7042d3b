crun --standalone --nproc-per-node=2
