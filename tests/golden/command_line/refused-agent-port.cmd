CRUN_AGENT_PORT=x crun logs --on a night
