crun --nnodes=0 train.py
