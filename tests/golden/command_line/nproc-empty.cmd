PET_NPROC_PER_NODE= crun train.py
