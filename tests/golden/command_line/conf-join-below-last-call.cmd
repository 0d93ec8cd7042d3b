crun --rdzv-backend=c10d --nnodes=1:2 --rdzv-conf=join_timeout=1.5 train.py
