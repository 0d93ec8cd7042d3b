PET_NPROC_PER_NODE=four crun train.py
