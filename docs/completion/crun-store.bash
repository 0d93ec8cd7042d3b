# bash completion for crun-store. Written by `make docs` from its tables; do not edit.
_crun_store() {
    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} options
    # "--name=value" comes as three words
    [[ $cur == '=' ]] && cur=
    [[ $prev == '=' ]] && prev=${COMP_WORDS[COMP_CWORD-2]}
    if ((COMP_CWORD == 1)); then
        COMPREPLY=($(compgen -W "serve get set add wait keys delete stat ping --help --version" -- "$cur"))
        return
    fi
    case ${COMP_WORDS[1]}:${prev//_/-} in
        serve:--host) COMPREPLY=($(compgen -f -- "$cur")); return ;;
        serve:--port) COMPREPLY=($(compgen -f -- "$cur")); return ;;
        serve:--port-range) COMPREPLY=($(compgen -f -- "$cur")); return ;;
        serve:--max-memory) COMPREPLY=($(compgen -f -- "$cur")); return ;;
        serve:--max-clients) COMPREPLY=($(compgen -f -- "$cur")); return ;;
        serve:--max-key) COMPREPLY=($(compgen -f -- "$cur")); return ;;
        serve:--max-value) COMPREPLY=($(compgen -f -- "$cur")); return ;;
        serve:--max-list) COMPREPLY=($(compgen -f -- "$cur")); return ;;
        serve:--max-client-buffer) COMPREPLY=($(compgen -f -- "$cur")); return ;;
        get:--timeout) COMPREPLY=($(compgen -f -- "$cur")); return ;;
        set:--timeout) COMPREPLY=($(compgen -f -- "$cur")); return ;;
        add:--timeout) COMPREPLY=($(compgen -f -- "$cur")); return ;;
        wait:--timeout) COMPREPLY=($(compgen -f -- "$cur")); return ;;
        keys:--timeout) COMPREPLY=($(compgen -f -- "$cur")); return ;;
        delete:--timeout) COMPREPLY=($(compgen -f -- "$cur")); return ;;
        stat:--timeout) COMPREPLY=($(compgen -f -- "$cur")); return ;;
        ping:--timeout) COMPREPLY=($(compgen -f -- "$cur")); return ;;
    esac
    case ${COMP_WORDS[1]} in
        serve) options="--host --port --port-range --max-memory --max-clients --max-key --max-value --max-list --max-client-buffer" ;;
        get) options="--json --timeout" ;;
        set) options="--json --timeout" ;;
        add) options="--json --timeout" ;;
        wait) options="--json --timeout" ;;
        keys) options="--json --timeout" ;;
        delete) options="--json --timeout" ;;
        stat) options="--json --timeout" ;;
        ping) options="--json --timeout" ;;
    esac
    if [[ $cur == -* ]]; then
        COMPREPLY=($(compgen -W "$options" -- "${cur//_/-}"))
    else
        COMPREPLY=($(compgen -f -- "$cur"))
    fi
}
complete -o bashdefault -o default -F _crun_store crun-store
