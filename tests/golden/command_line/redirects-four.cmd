crun -r 4 train.py
