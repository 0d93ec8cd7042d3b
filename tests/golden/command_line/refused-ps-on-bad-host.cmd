crun ps --on=a,a:b
