# What the interop tests need beside the programs: the stores of C on a pipe.
$(BUILD)/tests/interop/store_driver: $(call objects,tests/interop/store_driver.c) $(call rooms,store base)
	$(call say,LINK,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(ours_LDFLAGS) $(LDFLAGS) -o $@ $^ $(UV_LIBS) $(JANSSON_LIBS) -lm -ldl $(LDLIBS)

test_programs += $(BUILD)/tests/interop/store_driver
