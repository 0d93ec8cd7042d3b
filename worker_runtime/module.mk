# libcrunrt needs libc alone: it is the runtime, the store's clients and base. What needs more
# is a module under lib/crunrt/, loaded when it is asked for.
worker_runtime_chambers := channel group modules report runtime store
worker_runtime_SRCS := $(wildcard $(worker_runtime_chambers:%=worker_runtime/%/*.c))
worker_runtime_SRCS += contract/packet.c contract/progress.c
crunrt_SRCS := $(worker_runtime_SRCS) $(store_client_SRCS) $(base_library_SRCS)
crunrt_SONAME := libcrunrt.so.0

library: $(BUILD)/lib/libcrunrt.so $(BUILD)/lib/libcrunrt.a

# No name may stay open, except where the sanitizers leave theirs to the program.
crunrt_LDFLAGS := $(if $(SANITIZE),,-Wl,-z,defs)

$(BUILD)/lib/$(crunrt_SONAME): $(call objects,$(crunrt_SRCS))
	$(call say,LINK,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(ours_LDFLAGS) $(crunrt_LDFLAGS) $(LDFLAGS) -shared -Wl,-soname,$(crunrt_SONAME) \
	    -o $@ $^ $(LDLIBS)

$(BUILD)/lib/libcrunrt.so: $(BUILD)/lib/$(crunrt_SONAME)
	$(Q)ln -sf $(crunrt_SONAME) $@

# One object whose hidden names are made local, so that a static program sees crunrt_* and no more.
$(BUILD)/lib/libcrunrt.a: $(call objects,$(crunrt_SRCS))
	$(call say,AR,$@)
	@mkdir -p $(@D)
	$(Q)$(LD) -r -o $(BUILD)/obj/worker_runtime/libcrunrt.o $^
	$(Q)$(OBJCOPY) --localize-hidden $(BUILD)/obj/worker_runtime/libcrunrt.o
	$(Q)rm -f $@ && $(AR) rcs $@ $(BUILD)/obj/worker_runtime/libcrunrt.o

LD      ?= ld
OBJCOPY ?= objcopy

# ---- backends: modules with one exported table each, worker_runtime/backends/backend.h ----

backend_common := $(call objects,base/error.c worker_runtime/backends/reduce/reduce.c)
reduce_CFLAGS  := $(if $(SANITIZE)$(COVERAGE),,-O3)
$(call objects,worker_runtime/backends/reduce/reduce.c): ours_CFLAGS += $(reduce_CFLAGS)

module_LD = $(CC)
# BUNDLED=yes: modules find the libraries that a wheel has beside them in bundled/. DT_RPATH, not
# DT_RUNPATH, because it also holds for what those libraries need in turn.
origin_rpath    := -Wl,--disable-new-dtags$(comma)-rpath$(comma)'$$ORIGIN/bundled'
bundled_LDFLAGS  = $(if $(BUNDLED),$(origin_rpath))
$(BUILD)/lib/crunrt/%.so:
	$(call say,LINK,$@)
	@mkdir -p $(@D)
	$(Q)$(module_LD) $(ours_LDFLAGS) $(crunrt_LDFLAGS) $(LDFLAGS) -shared \
	    -o $@ $^ $(module_LIBS) $(LDLIBS)

# The backend NAME is built if HAVE is not empty; if it is empty, `make` says why not:
# $(call backend,NAME,HAVE,TITLE)
define backend
backends: $(if $(2),$$(BUILD)/lib/crunrt/$(1).so,say-no-$(1))
say-no-$(1):
	@echo '  $(3) backend left out: $$(no_$(1)_why)'
.PHONY: say-no-$(1)
endef

$(eval $(call backend,gloo,$(HAVE_GLOO),Gloo))

gloo_objects := $(call objects,$(wildcard worker_runtime/backends/gloo/*.cc))
$(BUILD)/lib/crunrt/gloo.so: $(gloo_objects) $(backend_common)
$(BUILD)/lib/crunrt/gloo.so: module_LD = $(CXX)
$(BUILD)/lib/crunrt/gloo.so: module_LIBS = -lgloo $(bundled_LDFLAGS)

# torch_gloo.so ends waits of the Gloo inside PyTorch; python/crunrt/_gloo.py loads it. Building it
# needs a C++ compiler, but not Gloo.
ifneq ($(if $(filter no,$(GLOO)),,$(have_CXX)),)
backends: $(BUILD)/lib/crunrt/torch_gloo.so
endif
$(BUILD)/lib/crunrt/torch_gloo.so: $(call objects,worker_runtime/torch/gloo_waits.cc)
$(BUILD)/lib/crunrt/torch_gloo.so: module_LD = $(CXX)

nccl_objects := $(call objects,$(wildcard worker_runtime/backends/nccl/*.c))
nccl_home  := $(patsubst %/include,%,$(NCCL_INCLUDE))
cuda_home  := $(patsubst %/include,%,$(CUDA_INCLUDE))
nccl_hints := $(nccl_home)/lib:$(cuda_home)/lib64:$(cuda_home)/lib
nccl_users   := $(nccl_objects) $(call objects,tests/fake/fake_nccl.c tests/fake/fake_nccl_old.c)
$(nccl_users): extra_CPPFLAGS = $(NCCL_CPPFLAGS) -DNCCL_LIBRARY_HINTS='"$(nccl_hints)"'

$(eval $(call backend,nccl,$(HAVE_NCCL),NCCL))

nccl_base := $(call objects,base/error.c base/time/clock.c base/text/parse.c)
$(BUILD)/lib/crunrt/nccl.so: $(nccl_objects) $(nccl_base)

# rccl.so, for AMD's GPUs, is compiled from the same files as nccl.so.
rccl_objects := $(patsubst worker_runtime/backends/nccl/%.c,$(BUILD)/obj/rccl/%.o,\
                    $(wildcard worker_runtime/backends/nccl/*.c))
rccl_hints   := $(patsubst %/include,%/lib,$(RCCL_INCLUDE))
$(rccl_objects): extra_CPPFLAGS = $(RCCL_CPPFLAGS) -DCRUNRT_RCCL \
                                  -DNCCL_LIBRARY_HINTS='"$(rccl_hints)"'
$(BUILD)/obj/rccl/%.o: worker_runtime/backends/nccl/%.c $(BUILD)/flags | $(BUILD)/libraries
	$(call say,CC,$< (RCCL))
	@mkdir -p $(@D)
	$(Q)$(CC) $(C_flags) -MMD -MP -c -o $@ $<

$(eval $(call backend,rccl,$(HAVE_RCCL),RCCL))

$(BUILD)/lib/crunrt/rccl.so: $(rccl_objects) $(nccl_base)

$(eval $(call backend,mpi,$(HAVE_MPI),MPI))

mpi_objects := $(call objects,$(wildcard worker_runtime/backends/mpi/*.c))
$(mpi_objects): extra_CPPFLAGS = $(MPI_CPPFLAGS)
$(BUILD)/lib/crunrt/mpi.so: $(mpi_objects) $(backend_common) \
    $(call objects,base/time/clock.c base/text/parse.c)
$(BUILD)/lib/crunrt/mpi.so: module_LIBS = $(MPI_LIBS)

# ---- the store's server, for rank 0 where no agent hosts one: the only part that needs libuv ----

backends: $(BUILD)/lib/crunrt/store_host.so
store_host_SRCS := worker_runtime/host/store_host.c $(store_SRCS) $(base_library_SRCS)
$(BUILD)/lib/crunrt/store_host.so: $(call objects,$(store_host_SRCS))
$(BUILD)/lib/crunrt/store_host.so: module_LIBS = $(MODULE_UV_LIBS) $(bundled_LDFLAGS)

# ---- crunrt(3), from the header ----

docs: docs-crunrt
docs-crunrt:
	$(Q)make/manual.py worker_runtime/include/crunrt.h $(VERSION) > docs/crunrt.3
.PHONY: docs-crunrt
