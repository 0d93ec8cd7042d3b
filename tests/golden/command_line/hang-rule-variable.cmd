PET_HANG_RULE=loss crun train.py
