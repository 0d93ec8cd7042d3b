# What the interop tests need beside the programs: the stores of C on a pipe.
$(BUILD)/tests/interop/store_driver: $(call objects,tests/interop/store_driver.c) $(call rooms,store base)
	$(call say,LINK,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(ours_LDFLAGS) $(LDFLAGS) -o $@ $^ $(UV_LIBS) $(JANSSON_LIBS) -lm -ldl $(LDLIBS)

test_programs += $(BUILD)/tests/interop/store_driver

interop-modern: all $(test_workers) $(BUILD)/tests/interop/store_driver ## the interop tests with a current torch, fetched into build/interop first; TORCH=2.6.0, TORCH=debian
	$(Q)python=$$(TORCH=$(TORCH) tests/interop/modern_venv.sh) && \
	    CRUN_TEST_MODERN_PYTHON=$$python CRUN_TEST_TORCH_PYTHON=$$python $(runner) --jobs 1 interop
.PHONY: interop-modern
