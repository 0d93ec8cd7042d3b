crun --max-restarts
