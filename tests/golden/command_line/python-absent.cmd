PYTHON_EXEC= PATH=${PATH%%:*} crun train.py
