# bash completion for crun-agent. Written by `make docs` from its tables; do not edit.
_crun_agent() {
    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} options
    # "--name=value" comes as three words
    [[ $cur == '=' ]] && cur=
    [[ $prev == '=' ]] && prev=${COMP_WORDS[COMP_CWORD-2]}
    if ((COMP_CWORD == 1)); then
        COMPREPLY=($(compgen -W "serve relay status notify admit dump why top key jobs --help --version" -- "$cur"))
        return
    fi
    case ${COMP_WORDS[1]}:${prev//_/-} in
        serve:--listen) COMPREPLY=($(compgen -W "[::]:29400 0.0.0.0:29400 127.0.0.1:0" -- "$cur")); return ;;
        serve:--port-range) COMPREPLY=($(compgen -W "29500-29600" -- "$cur")); return ;;
        serve:--store-allow) COMPREPLY=($(compgen -W "nodes any" -- "$cur")); return ;;
        serve:--status-addr) COMPREPLY=($(compgen -W "127.0.0.1:9400" -- "$cur")); return ;;
        serve:--rdzv-token-file) COMPREPLY=($(compgen -f -- "$cur")); return ;;
        serve:--auth) COMPREPLY=($(compgen -W "auto required munge off" -- "$cur")); return ;;
        relay:--listen) COMPREPLY=($(compgen -W "[::]:29402 0.0.0.0:29402 127.0.0.1:0" -- "$cur")); return ;;
        relay:--rdzv-token-file) COMPREPLY=($(compgen -f -- "$cur")); return ;;
        relay:--auth) COMPREPLY=($(compgen -W "auto required munge off" -- "$cur")); return ;;
        status:--rdzv-token-file) COMPREPLY=($(compgen -f -- "$cur")); return ;;
        notify:--job) COMPREPLY=($(compgen -f -- "$cur")); return ;;
        notify:--node) COMPREPLY=($(compgen -f -- "$cur")); return ;;
        notify:--kind) COMPREPLY=($(compgen -W "leave preemption maintenance" -- "$cur")); return ;;
        notify:--in) COMPREPLY=($(compgen -W "30 60 120" -- "$cur")); return ;;
        notify:--why) COMPREPLY=($(compgen -f -- "$cur")); return ;;
        notify:--rdzv-token-file) COMPREPLY=($(compgen -f -- "$cur")); return ;;
        admit:--job) COMPREPLY=($(compgen -f -- "$cur")); return ;;
        admit:--node) COMPREPLY=($(compgen -f -- "$cur")); return ;;
        admit:--rdzv-token-file) COMPREPLY=($(compgen -f -- "$cur")); return ;;
        dump:--job) COMPREPLY=($(compgen -f -- "$cur")); return ;;
        dump:--node) COMPREPLY=($(compgen -f -- "$cur")); return ;;
        dump:--rdzv-token-file) COMPREPLY=($(compgen -f -- "$cur")); return ;;
        why:--job) COMPREPLY=($(compgen -f -- "$cur")); return ;;
        why:--node) COMPREPLY=($(compgen -f -- "$cur")); return ;;
        why:--rdzv-token-file) COMPREPLY=($(compgen -f -- "$cur")); return ;;
        top:--interval) COMPREPLY=($(compgen -W "1 2 5" -- "$cur")); return ;;
        top:--rdzv-token-file) COMPREPLY=($(compgen -f -- "$cur")); return ;;
        key:--job) COMPREPLY=($(compgen -f -- "$cur")); return ;;
        key:--role) COMPREPLY=($(compgen -W "member operator user" -- "$cur")); return ;;
        key:--user) COMPREPLY=($(compgen -f -- "$cur")); return ;;
        key:--rdzv-token-file) COMPREPLY=($(compgen -f -- "$cur")); return ;;
        jobs:--listen) COMPREPLY=($(compgen -W "[::]:29401 0.0.0.0:29401 127.0.0.1:0" -- "$cur")); return ;;
        jobs:--rdzv-token-file) COMPREPLY=($(compgen -f -- "$cur")); return ;;
        jobs:--socket) COMPREPLY=($(compgen -f -- "$cur")); return ;;
    esac
    case ${COMP_WORDS[1]} in
        serve) options="--listen --port-range --store-allow --status-addr --rdzv-token-file --auth" ;;
        relay) options="--listen --rdzv-token-file --auth" ;;
        status) options="--json --rdzv-token-file" ;;
        notify) options="--job --node --kind --in --why --rdzv-token-file" ;;
        admit) options="--job --node --rdzv-token-file" ;;
        dump) options="--job --node --rdzv-token-file" ;;
        why) options="--job --node --json --rdzv-token-file" ;;
        top) options="--once --json --interval --rdzv-token-file" ;;
        key) options="--job --role --user --rdzv-token-file" ;;
        jobs) options="--listen --rdzv-token-file --socket" ;;
    esac
    if [[ $cur == -* ]]; then
        COMPREPLY=($(compgen -W "$options" -- "${cur//_/-}"))
    else
        COMPREPLY=($(compgen -f -- "$cur"))
    fi
}
complete -o bashdefault -o default -F _crun_agent crun-agent
