crun -- ./hello -- --help
