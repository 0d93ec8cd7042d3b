crun --nproc-per-node=0 train.py
