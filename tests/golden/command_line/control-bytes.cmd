crun "--ro$(printf 'a\nb\033[31m')" train.py
