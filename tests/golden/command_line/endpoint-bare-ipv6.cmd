crun --rdzv-backend=c10d --rdzv-endpoint=::1 train.py
