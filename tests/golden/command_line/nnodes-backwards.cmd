crun --nnodes=2:1 train.py
