crun --log-dri=x train.py
