# crun-agent: rendezvous and stores as a daemon, and the commands of an operator.
operator_SRCS := $(wildcard operator/*.c)

$(BUILD)/bin/crun-agent: $(call objects,$(operator_SRCS)) $(call rooms,rendezvous store base)
	$(call say,LINK,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(ours_LDFLAGS) $(LDFLAGS) -o $@ $^ $(UV_LIBS) $(JANSSON_LIBS) -lm -ldl $(LDLIBS)
