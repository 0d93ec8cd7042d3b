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
MODULE_UV_LIBS  ?= $(UV_LIBS)
$(BUILD)/lib/crunrt/%.so:
	$(call say,LINK,$@)
	@mkdir -p $(@D)
	$(Q)$(module_LD) $(ours_LDFLAGS) $(crunrt_LDFLAGS) $(LDFLAGS) -shared \
	    -o $@ $^ $(module_LIBS) $(LDLIBS)

ifneq ($(HAVE_GLOO),)
backends: $(BUILD)/lib/crunrt/gloo.so
else
backends: say-no-gloo
endif
say-no-gloo:
	@echo '  Gloo backend left out: $(no_gloo_why)'
.PHONY: say-no-gloo

gloo_objects := $(call objects,$(wildcard worker_runtime/backends/gloo/*.cc))
$(BUILD)/lib/crunrt/gloo.so: $(gloo_objects) $(backend_common)
$(BUILD)/lib/crunrt/gloo.so: module_LD = $(CXX)
$(BUILD)/lib/crunrt/gloo.so: module_LIBS = -lgloo $(bundled_LDFLAGS)

nccl_objects := $(call objects,$(wildcard worker_runtime/backends/nccl/*.c))
nccl_home  := $(patsubst %/include,%,$(NCCL_INCLUDE))
cuda_home  := $(patsubst %/include,%,$(CUDA_INCLUDE))
nccl_hints := $(nccl_home)/lib:$(cuda_home)/lib64:$(cuda_home)/lib
nccl_users   := $(nccl_objects) $(call objects,tests/fake/fake_nccl.c tests/fake/fake_nccl_old.c)
$(nccl_users): extra_CPPFLAGS = $(NCCL_CPPFLAGS) -DNCCL_LIBRARY_HINTS='"$(nccl_hints)"'

ifneq ($(HAVE_NCCL),)
backends: $(BUILD)/lib/crunrt/nccl.so
else
backends: say-no-nccl
endif
say-no-nccl:
	@echo '  NCCL backend left out: $(no_nccl_why)'
.PHONY: say-no-nccl

$(BUILD)/lib/crunrt/nccl.so: $(nccl_objects) $(call objects,base/error.c base/clock.c base/parse.c)

ifneq ($(HAVE_MPI),)
backends: $(BUILD)/lib/crunrt/mpi.so
else
backends: say-no-mpi
endif
say-no-mpi:
	@echo '  MPI backend left out: $(no_mpi_why)'
.PHONY: say-no-mpi

mpi_objects := $(call objects,$(wildcard worker_runtime/backends/mpi/*.c))
$(mpi_objects): extra_CPPFLAGS = $(MPI_CPPFLAGS)
$(BUILD)/lib/crunrt/mpi.so: $(mpi_objects) $(backend_common) \
    $(call objects,base/clock.c base/parse.c)
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
