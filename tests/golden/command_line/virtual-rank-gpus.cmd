CUDA_VISIBLE_DEVICES=4,5 crun --nproc-per-node=3 --virtual-local-rank train.py
