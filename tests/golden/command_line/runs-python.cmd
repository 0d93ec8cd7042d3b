crun train.py
