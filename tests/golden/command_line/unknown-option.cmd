crun --bogus train.py
