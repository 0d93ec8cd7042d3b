crun --rdzv-conf==1 train.py
