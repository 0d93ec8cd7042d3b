crun --nproc_pernode 2 train.py
