crun --log-dir=a-file/logs train.py
