crun --rdzv-backend=c10d --rdzv-endpoint='local host:1' train.py
