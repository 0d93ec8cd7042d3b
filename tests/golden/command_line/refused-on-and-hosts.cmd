crun --on=a,b --hosts=c train.py
