ln -s "$(command -v crun)" torchrun; torchrun() { ./torchrun "$@"; echo "status $?"; }
torchrun --help | head -1; torchrun --version; torchrun 2>&1; torchrun --bogus train.py 2>&1
torchrun train.py; torchrun --log-dir logs --no-python sh -c 'exit 3' 2>&1 | grep -e Error -e FAILED -e status
rm -r torchrun logs
