crun --nproc-per-node=xpu train.py
