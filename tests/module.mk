# Unit tests: every tests/unit/test_NAME.c is one Check program, linked with all rooms.
unit_tests := $(patsubst tests/unit/%.c,$(BUILD)/tests/unit/%,$(wildcard tests/unit/test_*.c))

all_rooms := $(call rooms,launcher agent status remote rendezvous inspect worker_runtime store base)

$(BUILD)/tests/unit/%: $(BUILD)/obj/tests/unit/%.o $(all_rooms)
	$(call link,$(CHECK_LIBS) $(program_LIBS))

.PRECIOUS: $(BUILD)/obj/%.o

# a part of the nccl backend, which is a module and in no room's archive
$(BUILD)/tests/unit/test_reform_plan: $(call objects,worker_runtime/backends/nccl/reform_plan.c)
$(call objects,$(wildcard tests/unit/test_*.c)): | $(BUILD)/test-libraries
$(BUILD)/test-libraries:
	@mkdir -p $(@D)
	@CC='$(CC)' CXX='$(CXX)' make/deps.sh --tell unit
	@touch $@

# Every kind of test that needs more than the runner has a module.mk in its own folder.
include $(wildcard tests/*/module.mk)
