crun --run-path gone.py
