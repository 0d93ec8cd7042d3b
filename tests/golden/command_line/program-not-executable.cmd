crun ./locked
