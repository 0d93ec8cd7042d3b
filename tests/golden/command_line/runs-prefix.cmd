crun --log-dir=logs -t 1 --log-line-prefix-template='<${role_name}:${local_rank}:${rank}> ' ./hello
