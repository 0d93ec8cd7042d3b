crun ./hello a b
