crun --master-port=$BUSY_PORT train.py
