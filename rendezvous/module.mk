rendezvous_SRCS := $(wildcard rendezvous/*.c rendezvous/*/*.c)
