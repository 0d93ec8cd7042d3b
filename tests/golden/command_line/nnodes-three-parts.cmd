crun --nnodes=1:2:3 train.py
