PYTHON_EXEC=python9 crun train.py
