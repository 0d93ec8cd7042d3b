base_SRCS := $(wildcard base/*.c)

# What only programs need: libcrunrt, which has no command line, is linked without it.
base_library_SRCS := $(filter-out base/command_line.c base/program%.c,$(base_SRCS))
