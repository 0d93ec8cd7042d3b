# libcrunrt needs libc alone: the runtime, the store's clients and base, nothing else.
crunrt_SRCS := $(wildcard worker_runtime/*.c) $(store_client_SRCS) $(base_SRCS)

library: $(BUILD)/lib/libcrunrt.so $(BUILD)/lib/libcrunrt.a
backends:
