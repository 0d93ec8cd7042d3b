crun --monitor-interval=0 train.py
