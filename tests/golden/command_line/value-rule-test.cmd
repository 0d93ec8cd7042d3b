crun --value-rule='=1:3:loss=(.*)' train.py
