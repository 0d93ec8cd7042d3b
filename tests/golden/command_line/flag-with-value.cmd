crun --standalone=yes train.py
