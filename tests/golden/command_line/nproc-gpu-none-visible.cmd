CUDA_VISIBLE_DEVICES= crun --nproc-per-node=gpu train.py
