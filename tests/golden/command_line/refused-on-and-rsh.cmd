crun --on=a,b --rsh=ssh train.py
