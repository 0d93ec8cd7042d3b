crun -h
