crun --print-completion bash | head -n 1
