CUDA_VISIBLE_DEVICES= crun --nproc-per-node=2 --numa-binding=node train.py
