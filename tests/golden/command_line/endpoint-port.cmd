crun --rdzv-backend=c10d --rdzv-endpoint=localhost:99999 train.py
