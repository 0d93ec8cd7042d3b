crun --shutdown-timeout=-1 train.py
