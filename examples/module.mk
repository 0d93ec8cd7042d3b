# Every examples/NAME.c is one program on libcrunrt. It finds the library beside itself.
example_programs := $(patsubst examples/%.c,$(BUILD)/examples/%,$(wildcard examples/*.c))

examples: $(example_programs) backends

$(BUILD)/examples/%: $(BUILD)/obj/examples/%.o $(BUILD)/lib/libcrunrt.so
	$(call link_crunrt,../lib,-lm)

# On GPUs: where CUDA was found. The CUDA runtime is linked, so these need it to start.
cuda_folders := $(foreach d,lib64 lib,$(patsubst %/include,%/$(d),$(CUDA_INCLUDE)))
cuda_lib     := $(firstword $(wildcard $(cuda_folders:%=%/libcudart.so)))
cuda_LIBS    := -Wl,-rpath,$(dir $(cuda_lib)) $(cuda_lib)
ifneq ($(and $(HAVE_NCCL),$(cuda_lib)),)
examples: $(BUILD)/examples/all_reduce_gpu
endif
$(call objects,examples/cuda/all_reduce_gpu.c): extra_CPPFLAGS = -isystem $(CUDA_INCLUDE)
$(BUILD)/examples/all_reduce_gpu: $(call objects,examples/cuda/all_reduce_gpu.c) \
    $(BUILD)/lib/libcrunrt.so
	$(call link_crunrt,../lib,$(cuda_LIBS))
