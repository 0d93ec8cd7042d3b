crun
