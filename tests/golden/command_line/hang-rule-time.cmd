crun --hang-rule=1:x:loss= train.py
