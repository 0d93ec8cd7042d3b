crun --version > /dev/full
