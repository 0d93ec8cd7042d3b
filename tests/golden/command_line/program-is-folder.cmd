crun folder
