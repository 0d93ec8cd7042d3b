crun --max-restarts=-1 train.py
