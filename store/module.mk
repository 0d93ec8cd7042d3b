# What may live in other people's processes (libcrunrt): no libuv, no jansson, no threads.
# The pure key space is in it: the hash store is made of it.
store_client_SRCS := $(filter-out store/server%.c store/client_async%.c store/crun_store.c store/command_%.c,$(wildcard store/*.c))
store_SRCS        := $(filter-out store/crun_store.c store/command_%.c,$(wildcard store/*.c))
