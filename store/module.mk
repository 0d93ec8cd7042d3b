# What may live in other people's processes (libcrunrt): no libuv, no jansson, no threads.
store_keyspace_SRCS := store/keyspace.c store/output.c store/remains.c
store_program_SRCS  := store/crun_store.c $(wildcard store/command_*.c)
store_SRCS          := $(filter-out $(store_program_SRCS),$(wildcard store/*.c))
store_client_SRCS   := $(filter-out store/server%.c $(store_keyspace_SRCS),$(store_SRCS))
