# What may live in other people's processes (libcrunrt): no libuv, no jansson, no threads.
store_server_SRCS := store/server%.c store/keyspace.c store/key_table.c store/output.c
store_client_SRCS := $(filter-out $(store_server_SRCS) store/client_async%.c store/crun_store.c store/command_%.c,$(wildcard store/*.c))
store_SRCS        := $(filter-out store/crun_store.c store/command_%.c,$(wildcard store/*.c))
