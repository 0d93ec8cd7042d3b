crun nothing-here
