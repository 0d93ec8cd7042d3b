# Programs on libcrunrt that the integration tests start, and the fake that stands in for NCCL.
# crunrt_worker is made of all files in crunrt/, each other program of one file.
test_workers := $(BUILD)/tests/workers/crunrt_worker $(patsubst tests/workers/%.c,$(BUILD)/tests/workers/%,$(wildcard tests/workers/*.c))
fake_nccl    := $(if $(HAVE_NCCL),$(BUILD)/tests/fake/fake_nccl.so $(BUILD)/tests/fake/fake_nccl_old.so)
test_programs += $(test_workers) $(fake_nccl)

test-workers: $(test_workers) $(fake_nccl) backends
.PHONY: test-workers

define link_worker
	$(call say,LINK,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(ours_LDFLAGS) $(LDFLAGS) -Wl,-rpath,'$$ORIGIN/../../lib' -o $@ $(filter %.o,$^) -L$(BUILD)/lib -lcrunrt $(LDLIBS)
endef
$(BUILD)/tests/workers/crunrt_worker: $(call objects,$(wildcard tests/workers/crunrt/*.c)) $(BUILD)/lib/libcrunrt.so
	$(link_worker)
$(BUILD)/tests/workers/%: $(BUILD)/obj/tests/workers/%.o $(BUILD)/lib/libcrunrt.so
	$(link_worker)

$(BUILD)/tests/fake/fake_nccl.so: $(call objects,tests/fake/fake_nccl.c)
$(BUILD)/tests/fake/fake_nccl_old.so: $(call objects,tests/fake/fake_nccl_old.c)
$(fake_nccl):
	@mkdir -p $(@D)
	$(Q)$(CC) $(ours_LDFLAGS) $(LDFLAGS) -shared -o $@ $^ $(LDLIBS)
