# Unit tests: every tests/unit/test_NAME.c is one Check program, linked with all rooms.
unit_tests := $(patsubst tests/unit/%.c,$(BUILD)/tests/unit/%,$(wildcard tests/unit/test_*.c))

$(BUILD)/tests/unit/%: $(BUILD)/obj/tests/unit/%.o $(call rooms,launcher agent rendezvous worker_runtime store base)
	$(call say,LINK,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(ours_LDFLAGS) $(LDFLAGS) -o $@ $^ $(CHECK_LIBS) $(UV_LIBS) $(JANSSON_LIBS) -lm -ldl $(LDLIBS)

.PRECIOUS: $(BUILD)/obj/%.o

$(call objects,$(wildcard tests/unit/test_*.c)): | $(BUILD)/test-libraries
$(BUILD)/test-libraries:
	@mkdir -p $(@D)
	@CC='$(CC)' CXX='$(CXX)' make/deps.sh --tell unit
	@touch $@

# Every kind of test that needs more than the runner has a module.mk in its own folder.
include $(wildcard tests/*/module.mk)
