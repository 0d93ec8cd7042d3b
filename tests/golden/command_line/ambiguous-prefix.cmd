crun --rdzv=x train.py
