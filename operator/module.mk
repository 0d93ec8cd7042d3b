# crun-agent: rendezvous and stores as a daemon, and the commands of an operator.
operator_SRCS := $(wildcard operator/*.c)

$(BUILD)/bin/crun-agent: $(call objects,$(operator_SRCS)) \
    $(call rooms,status remote rendezvous inspect store base)
	$(call link,$(program_LIBS))
