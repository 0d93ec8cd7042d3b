base_SRCS := $(wildcard base/*.c)
