crun --signals-to-handle=SIGTERM,SIGKILL train.py
