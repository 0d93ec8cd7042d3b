crun --rdzv-conf=is_host=maybe train.py
