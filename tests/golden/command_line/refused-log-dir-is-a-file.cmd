crun --log-dir=a-file train.py
