# What may live in other people's processes (libcrunrt): no libuv, no jansson, no threads.
store_client_SRCS  := $(wildcard store/bytes/*.c store/wire/*.c store/client/*.c)
store_SRCS         := $(store_client_SRCS) $(wildcard store/keyspace/*.c store/gateway/*.c \
                                            store/server/*.c)
store_program_SRCS := $(wildcard store/command/*.c)
