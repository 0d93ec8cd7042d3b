crun -t 0:1,1:9 train.py
