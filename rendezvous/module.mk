rendezvous_SRCS := $(wildcard rendezvous/*.c)
