crun --no-python -m train
