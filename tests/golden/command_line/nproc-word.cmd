crun --nproc-per-node abc train.py
