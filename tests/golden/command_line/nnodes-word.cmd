crun --nnodes=abc train.py
