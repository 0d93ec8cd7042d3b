crun -z train.py
