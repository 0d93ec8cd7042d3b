crun --numa-binding=node train.py
