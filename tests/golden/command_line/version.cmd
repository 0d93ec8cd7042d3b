crun --version
