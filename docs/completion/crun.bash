# bash completion for crun. Written by `make docs` from its tables; do not edit.
_crun() {
    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} options
    # "--name=value" comes as three words
    [[ $cur == '=' ]] && cur=
    [[ $prev == '=' ]] && prev=${COMP_WORDS[COMP_CWORD-2]}
    case ${prev//_/-} in
        --nnodes) COMPREPLY=($(compgen -W "1 2 1:2" -- "$cur")); return ;;
        --nproc-per-node|-ppn) COMPREPLY=($(compgen -W "auto cpu gpu xpu npu" -- "$cur")); return ;;
        --node-rank) COMPREPLY=($(compgen -f -- "$cur")); return ;;
        --scheduler) COMPREPLY=($(compgen -W "auto none show" -- "$cur")); return ;;
        --role) COMPREPLY=($(compgen -f -- "$cur")); return ;;
        --on-failure) COMPREPLY=($(compgen -W "all alone alone:3 end" -- "$cur")); return ;;
        --numa-binding) COMPREPLY=($(compgen -W "node socket exclusive core-complex" -- "$cur")); return ;;
        --hosts) COMPREPLY=($(compgen -W "localhost" -- "$cur")); return ;;
        --hostfile) COMPREPLY=($(compgen -f -- "$cur")); return ;;
        --on) COMPREPLY=($(compgen -W "all" -- "$cur")); return ;;
        --world-size|-n|-np) COMPREPLY=($(compgen -W "1 2 8" -- "$cur")); return ;;
        --export|-x) COMPREPLY=($(compgen -W "HF_HOME WANDB_MODE" -- "$cur")); return ;;
        --rsh) COMPREPLY=($(compgen -W "ssh rsh" -- "$cur")); return ;;
        --fan-out) COMPREPLY=($(compgen -W "32 64" -- "$cur")); return ;;
        --start-method) COMPREPLY=($(compgen -W "spawn fork forkserver" -- "$cur")); return ;;
        --master-addr) COMPREPLY=($(compgen -W "127.0.0.1 localhost" -- "$cur")); return ;;
        --master-port) COMPREPLY=($(compgen -W "0 29500" -- "$cur")); return ;;
        --local-addr) COMPREPLY=($(compgen -f -- "$cur")); return ;;
        --port-range) COMPREPLY=($(compgen -W "29500-29600" -- "$cur")); return ;;
        --store-allow) COMPREPLY=($(compgen -W "nodes any" -- "$cur")); return ;;
        --rdzv-backend) COMPREPLY=($(compgen -W "c10d static etcd" -- "$cur")); return ;;
        --rdzv-endpoint) COMPREPLY=($(compgen -W "localhost:0 localhost:29400" -- "$cur")); return ;;
        --rdzv-id) COMPREPLY=($(compgen -f -- "$cur")); return ;;
        --rdzv-conf) COMPREPLY=($(compgen -W "join_timeout= last_call_timeout= close_timeout= heartbeat_timeout= keep_alive_interval= keep_alive_max_attempt= change_notice= coordinator_wait= stop_limit= read_timeout= max_losses= restart_backoff= restart_refill= flap_limit= flap_window= flap_refusal= aside_after= aside_time= slow_percent= slow_time= slow_notice= is_host= keep_coordinator= timeout= candidate= protocol= ca_cert= ssl_cert= ssl_cert_key= user= password_file= etcd_prefix= auth= relay=" -- "$cur")); return ;;
        --rdzv-token-file) COMPREPLY=($(compgen -f -- "$cur")); return ;;
        --max-restarts) COMPREPLY=($(compgen -W "0 1 3" -- "$cur")); return ;;
        --monitor-interval) COMPREPLY=($(compgen -f -- "$cur")); return ;;
        --shutdown-timeout) COMPREPLY=($(compgen -W "0 30" -- "$cur")); return ;;
        --signals-to-handle) COMPREPLY=($(compgen -W "SIGTERM SIGINT SIGHUP SIGQUIT SIGUSR1 SIGUSR2" -- "$cur")); return ;;
        --preemption-signals) COMPREPLY=($(compgen -W "SIGUSR1 SIGUSR2 SIGTERM" -- "$cur")); return ;;
        --preemption-notice) COMPREPLY=($(compgen -W "30 60 120" -- "$cur")); return ;;
        --step-timeout) COMPREPLY=($(compgen -W "0 600" -- "$cur")); return ;;
        --hang-timeout) COMPREPLY=($(compgen -W "0 600 1800" -- "$cur")); return ;;
        --hang-when) COMPREPLY=($(compgen -W "idle silent" -- "$cur")); return ;;
        --hang-rule) COMPREPLY=($(compgen -W "120:300: end:" -- "$cur")); return ;;
        --value-rule) COMPREPLY=($(compgen -W "nan:3:" -- "$cur")); return ;;
        --health-check) COMPREPLY=($(compgen -f -- "$cur")); return ;;
        --health-builtin) COMPREPLY=($(compgen -W "none all clock shm memlock files disk gpu link segment service" -- "$cur")); return ;;
        --health-timeout) COMPREPLY=($(compgen -W "10 30 120" -- "$cur")); return ;;
        --pair-check) COMPREPLY=($(compgen -f -- "$cur")); return ;;
        --pair-timeout) COMPREPLY=($(compgen -W "10 30 120" -- "$cur")); return ;;
        --health-segment-dir) COMPREPLY=($(compgen -f -- "$cur")); return ;;
        --health-service) COMPREPLY=($(compgen -f -- "$cur")); return ;;
        --exit-codes) COMPREPLY=($(compgen -W "torchrun distinct" -- "$cur")); return ;;
        --leftovers) COMPREPLY=($(compgen -W "detached end keep" -- "$cur")); return ;;
        --preload) COMPREPLY=($(compgen -W "torch" -- "$cur")); return ;;
        --log-dir) COMPREPLY=($(compgen -d -- "$cur")); return ;;
        --log-max-size) COMPREPLY=($(compgen -W "0 10M 1G" -- "$cur")); return ;;
        --redirects|-r) COMPREPLY=($(compgen -W "0 1 2 3" -- "$cur")); return ;;
        --tee|-t) COMPREPLY=($(compgen -W "0 1 2 3" -- "$cur")); return ;;
        --log-line-prefix-template) COMPREPLY=($(compgen -f -- "$cur")); return ;;
        --local-ranks-filter) COMPREPLY=($(compgen -W "0" -- "$cur")); return ;;
        --duplicate-stdout-filters) COMPREPLY=($(compgen -f -- "$cur")); return ;;
        --duplicate-stderr-filters) COMPREPLY=($(compgen -f -- "$cur")); return ;;
        --logs-specs) COMPREPLY=($(compgen -f -- "$cur")); return ;;
        --event-log-handler) COMPREPLY=($(compgen -W "null console" -- "$cur")); return ;;
        --event-log) COMPREPLY=($(compgen -f -- "$cur")); return ;;
        --cycle-info-dir) COMPREPLY=($(compgen -d -- "$cur")); return ;;
        --summary) COMPREPLY=($(compgen -W "auto always never" -- "$cur")); return ;;
        --status-addr) COMPREPLY=($(compgen -W "127.0.0.1:0 127.0.0.1:9400" -- "$cur")); return ;;
        --log-format) COMPREPLY=($(compgen -W "text json" -- "$cur")); return ;;
        --print-completion) COMPREPLY=($(compgen -W "bash" -- "$cur")); return ;;
    esac
    options="--nnodes --nproc-per-node --node-rank --scheduler --role --on-failure --service --virtual-local-rank --numa-binding --hosts --hostfile --on --world-size --export --rsh --fan-out --copy-crun --pty --module --no-python --run-path --pmi --jax --tf-config --start-method --standalone --master-addr --master-port --local-addr --port-range --store-allow --store-gateway --rdzv-backend --rdzv-endpoint --rdzv-id --rdzv-conf --rdzv-token-file --max-restarts --monitor-interval --shutdown-timeout --signals-to-handle --preemption-signals --preemption-notice --step-timeout --hang-timeout --hang-when --hang-rule --value-rule --health-check --health-builtin --health-timeout --pair-check --pair-timeout --health-segment-dir --health-service --exit-codes --leftovers --preload --log-dir --log-max-size --redirects --tee --log-line-prefix-template --local-ranks-filter --duplicate-stdout-filters --duplicate-stderr-filters --logs-specs --event-log-handler --event-log --cycle-info-dir --summary --status-addr --log-format --fold --use-env --print-completion --help --version"
    if [[ $cur == -* ]]; then
        COMPREPLY=($(compgen -W "$options" -- "${cur//_/-}"))
    else
        COMPREPLY=($(compgen -f -- "$cur") $(compgen -c -- "$cur"))
    fi
}
complete -o bashdefault -o default -F _crun crun
