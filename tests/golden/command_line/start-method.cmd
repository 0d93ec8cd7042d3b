crun --start-method=foo train.py
