crun --role --standalone train.py
