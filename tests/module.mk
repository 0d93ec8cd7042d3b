# Unit tests: every tests/unit/test_NAME.c is one Check program, linked with all rooms.
unit_tests := $(patsubst tests/unit/%.c,$(BUILD)/tests/unit/%,$(wildcard tests/unit/test_*.c))

$(BUILD)/tests/unit/%: $(BUILD)/obj/tests/unit/%.o $(call rooms,launcher agent rendezvous worker_runtime store base)
	$(call say,LINK,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(ours_LDFLAGS) $(LDFLAGS) -o $@ $^ $(CHECK_LIBS) $(UV_LIBS) $(JANSSON_LIBS) -lm -ldl $(LDLIBS)

.PRECIOUS: $(BUILD)/obj/%.o

check-unit: $(unit_tests) ## the unit tests
	$(Q)for t in $^; do $$t || exit 1; done
.PHONY: check-unit

# Every kind of test that needs more than the runner has a module.mk in its own folder.
include $(wildcard tests/*/module.mk)
