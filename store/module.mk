# What may live in other people's processes (libcrunrt): no libuv, no jansson, no threads.
store_client_SRCS  := $(wildcard store/wire/*.c store/client/*.c) store/keyspace/key_table.c store/keyspace/value.c
store_SRCS         := $(wildcard store/wire/*.c store/keyspace/*.c store/server/*.c store/client/*.c)
store_program_SRCS := $(wildcard store/command/*.c)
