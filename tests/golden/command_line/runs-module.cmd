crun -m train
