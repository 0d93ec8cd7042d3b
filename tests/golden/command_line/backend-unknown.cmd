crun --rdzv-backend=foo train.py
