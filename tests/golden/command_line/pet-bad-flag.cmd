PET_STANDALONE=true crun train.py
