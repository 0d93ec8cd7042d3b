crun --local-ranks-filter=0,one train.py
