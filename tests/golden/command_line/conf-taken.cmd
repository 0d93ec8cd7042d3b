crun --rdzv-conf=backend=c10d train.py
