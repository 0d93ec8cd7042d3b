# Looking into workers: used by the agent, and by crun-agent.
inspect_SRCS := $(wildcard inspect/*.c)
