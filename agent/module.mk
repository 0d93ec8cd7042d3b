agent_SRCS := $(filter-out agent/crun_agent.c,$(wildcard agent/*.c agent/*/*.c))
