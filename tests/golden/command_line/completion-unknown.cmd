crun --print-completion=fish
