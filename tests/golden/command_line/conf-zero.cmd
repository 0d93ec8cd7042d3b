crun --rdzv-conf=join_timeout=0 train.py
