remote_SRCS := $(wildcard remote/*.c)
