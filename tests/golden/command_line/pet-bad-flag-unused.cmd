PET_NO_PYTHON=no crun --standalone train.py
