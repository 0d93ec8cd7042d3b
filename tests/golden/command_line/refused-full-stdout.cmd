crun --help > /dev/full
