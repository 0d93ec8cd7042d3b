# Every examples/NAME.c is one program on libcrunrt. It finds the library beside itself.
example_programs := $(patsubst examples/%.c,$(BUILD)/examples/%,$(wildcard examples/*.c))

examples: $(example_programs) backends

$(BUILD)/examples/%: $(BUILD)/obj/examples/%.o $(BUILD)/lib/libcrunrt.so
	$(call say,LINK,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(ours_LDFLAGS) $(LDFLAGS) -Wl,-rpath,'$$ORIGIN/../lib' -o $@ $< -L$(BUILD)/lib -lcrunrt -lm $(LDLIBS)
