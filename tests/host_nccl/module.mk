# The host NCCL: libcudart.so, libnccl.so.2 and libamdhip64.so for machines without a GPU, and the
# programs that the tests run on them. If the headers of CUDA or NCCL are missing, `make
# test-workers` prints a line that says so and builds none of them.
host_nccl      := $(BUILD)/tests/host_nccl
host_cuda_SRCS := $(addprefix tests/host_nccl/,counters.c faults.c races.c memory.c streams.c \
                    capture.c cuda_calls.c cuda_memory.c driver.c)
host_nccl_SRCS := $(addprefix tests/host_nccl/,arithmetic.c peers.c kernels.c group.c comm.c \
                    descend.c collectives.c)
host_findings  := $(wildcard tests/host_nccl/findings/*.c)
host_programs  := $(patsubst tests/host_nccl/%.c,$(host_nccl)/%,$(host_findings)) \
                  $(host_nccl)/model

ifneq ($(HAVE_NCCL),)
host_nccl_built := $(host_nccl)/libcudart.so $(host_nccl)/libnccl.so.2 $(host_nccl)/libamdhip64.so \
                   $(host_programs)
else
test-workers: say-no-host-nccl
endif
say-no-host-nccl:
	@echo '  Host NCCL for the tests left out: $(no_nccl_why)'
.PHONY: say-no-host-nccl

test_programs += $(host_nccl_built)
test-workers: $(host_nccl_built)

host_nccl_objects := $(call objects,$(host_cuda_SRCS) $(host_nccl_SRCS) $(host_findings) \
                       tests/host_nccl/model.c tests/host_nccl/hip.c)
$(host_nccl_objects): extra_CPPFLAGS = $(NCCL_CPPFLAGS)

# Programs look for libcudart under a name that contains CUDA's major version, so make all of them.
$(host_nccl)/libcudart.so: $(call objects,$(host_cuda_SRCS))
	$(call say,LINK,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(ours_LDFLAGS) $(LDFLAGS) -shared -Wl,-soname,libcudart.so -o $@ $^ $(LDLIBS)
	$(Q)for v in 11.0 12 13; do ln -sf libcudart.so $(@D)/libcudart.so.$$v; done
	$(Q)ln -sf libcudart.so $(@D)/libcuda.so.1

$(host_nccl)/libnccl.so.2: $(call objects,$(host_nccl_SRCS)) $(host_nccl)/libcudart.so
	$(call say,LINK,$@)
	$(Q)$(CC) $(ours_LDFLAGS) $(LDFLAGS) -shared -Wl,-soname,libnccl.so.2 \
	    -Wl,-rpath,'$$ORIGIN' -o $@ $(filter %.o,$^) -L$(@D) -lcudart -lm $(LDLIBS)
	$(Q)ln -sf libnccl.so.2 $(@D)/libnccl.so

# libamdhip64.so stands in for HIP in tests of the rccl backend. The host NCCL stands in for RCCL,
# too, because NCCL and RCCL have the same functions.
$(host_nccl)/libamdhip64.so: $(call objects,tests/host_nccl/hip.c) $(host_nccl)/libcudart.so
	$(call say,LINK,$@)
	$(Q)$(CC) $(ours_LDFLAGS) $(LDFLAGS) -shared -Wl,-soname,libamdhip64.so \
	    -Wl,-rpath,'$$ORIGIN' -o $@ $(filter %.o,$^) -L$(@D) -lcudart $(LDLIBS)

# `model` uses only the two libraries; the programs in findings/ also use libcrunrt.
$(host_nccl)/model: $(call objects,tests/host_nccl/model.c) $(host_nccl)/libnccl.so.2
	$(call say,LINK,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(ours_LDFLAGS) $(LDFLAGS) -Wl,-rpath,'$$ORIGIN' -o $@ $< \
	    -L$(host_nccl) -l:libnccl.so.2 -lcudart -lm $(LDLIBS)

$(host_nccl)/findings/%: $(BUILD)/obj/tests/host_nccl/findings/%.o $(host_nccl)/libnccl.so.2 \
                         $(BUILD)/lib/libcrunrt.so
	$(call say,LINK,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(ours_LDFLAGS) $(LDFLAGS) -Wl,-rpath,'$$ORIGIN/..:$$ORIGIN/../../../lib' \
	    -o $@ $< -L$(BUILD)/lib -lcrunrt -L$(host_nccl) -l:libnccl.so.2 -lcudart -lm $(LDLIBS)
