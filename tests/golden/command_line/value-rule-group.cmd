crun --value-rule='nan:3:loss=[^ ]+' train.py
