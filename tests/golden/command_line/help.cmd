crun --help
