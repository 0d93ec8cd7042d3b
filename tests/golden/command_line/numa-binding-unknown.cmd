crun --numa-binding=numa train.py
