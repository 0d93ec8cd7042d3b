crun --max-restarts=x train.py
