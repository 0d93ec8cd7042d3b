crun --rdzv-conf=a train.py
