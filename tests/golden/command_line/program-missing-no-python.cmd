crun --no-python train.py
