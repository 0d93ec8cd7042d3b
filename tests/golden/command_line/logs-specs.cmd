crun --logs-specs=mine train.py
