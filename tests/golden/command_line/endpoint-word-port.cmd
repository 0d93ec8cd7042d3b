crun --rdzv-backend=c10d --rdzv-endpoint=localhost:http train.py
