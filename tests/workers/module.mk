# Programs on libcrunrt that the integration tests start, and the fake that stands in for NCCL.
# crunrt_worker is made of all files in crunrt/, each other program of one file.
test_workers := $(patsubst tests/workers/%.c,$(BUILD)/tests/workers/%,$(wildcard tests/workers/*.c))
test_workers += $(BUILD)/tests/workers/crunrt_worker
fake_nccl    := $(BUILD)/tests/fake/fake_nccl.so $(BUILD)/tests/fake/fake_nccl_old.so
fake_nccl    := $(if $(HAVE_NCCL),$(fake_nccl))
test_programs += $(test_workers) $(fake_nccl)

test-workers: $(test_workers) $(fake_nccl) backends
.PHONY: test-workers

$(BUILD)/tests/workers/crunrt_worker: $(call objects,$(wildcard tests/workers/crunrt/*.c)) \
    $(BUILD)/lib/libcrunrt.so
	$(call link_crunrt,../../lib)
$(BUILD)/tests/workers/%: $(BUILD)/obj/tests/workers/%.o $(BUILD)/lib/libcrunrt.so
	$(call link_crunrt,../../lib)

$(BUILD)/tests/fake/fake_nccl.so: $(call objects,tests/fake/fake_nccl.c)
$(BUILD)/tests/fake/fake_nccl_old.so: $(call objects,tests/fake/fake_nccl_old.c)
$(fake_nccl):
	@mkdir -p $(@D)
	$(Q)$(CC) $(ours_LDFLAGS) $(LDFLAGS) -shared -o $@ $^ $(LDLIBS)
