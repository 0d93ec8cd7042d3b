agent_SRCS := $(wildcard agent/*.c agent/*/*.c) contract/packet.c contract/progress.c
