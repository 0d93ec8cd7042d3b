crun ./windows
