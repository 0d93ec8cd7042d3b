crun nothing/here.py
