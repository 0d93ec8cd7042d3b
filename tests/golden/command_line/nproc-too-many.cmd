crun --nproc-per-node=100000 train.py
