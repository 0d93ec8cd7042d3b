# Tier E: on a real GPU. Not part of check.
gpu_programs := $(addprefix $(BUILD)/tests/gpu/,gpu_worker gpu_streams)
gpu_worker := $(if $(and $(HAVE_NCCL),$(cuda_lib)),$(gpu_programs))

check-gpu: all $(gpu_worker) ## the nccl backend on a real GPU; a table for docs/gpu-evidence.md
	$(Q)BUILD=$(BUILD) tests/gpu/check_gpu.py
.PHONY: check-gpu

test_programs += $(gpu_worker)
test-workers: $(gpu_worker)

gpu_objects := $(call objects,tests/gpu/gpu_worker.c tests/gpu/gpu_streams.c)
$(gpu_objects): extra_CPPFLAGS = -isystem $(CUDA_INCLUDE)
$(BUILD)/tests/gpu/%: $(BUILD)/obj/tests/gpu/%.o $(BUILD)/lib/libcrunrt.so
	$(call link_crunrt,../../lib,$(cuda_LIBS))
