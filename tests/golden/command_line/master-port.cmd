crun --master-port=x train.py
