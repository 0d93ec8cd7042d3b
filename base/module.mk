base_SRCS := $(wildcard base/*.c base/*/*.c)

# What only programs need: libcrunrt, which has no command line, is linked without it.
base_library_SRCS := $(filter-out base/program/%.c,$(base_SRCS))
