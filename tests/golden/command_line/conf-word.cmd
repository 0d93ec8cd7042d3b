crun --rdzv-conf=join_timeout=x train.py
