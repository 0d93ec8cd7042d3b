crun --tee= train.py
