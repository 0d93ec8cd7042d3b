CRUN_CLUSTER_HOSTS=nowhere crun --on=all train.py
