crun --rdzv-endpoint=localhost train.py
