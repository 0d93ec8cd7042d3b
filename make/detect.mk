# What this machine has. Every answer can be overridden on the command line.

PKG_CONFIG ?= pkg-config

# The path of the first of the static libraries $(1) that the compiler finds; empty if it finds
# none.
find_archive = $(firstword $(filter /%,$(foreach a,$(1),$(shell $(CC) -print-file-name=$(a)))))
# Programs are linked with static libraries where these are installed. Such a program starts 0.2 ms
# earlier, because the dynamic linker has to map and bind only libc; and it also runs on machines
# without these libraries. `make UV_LIBS=-luv JANSSON_LIBS=-ljansson` links the shared ones. Debian
# calls libuv's archive libuv_a.a.
shared_uv      = $(or $(shell $(PKG_CONFIG) --libs libuv 2>/dev/null),-luv)
shared_jansson = $(or $(shell $(PKG_CONFIG) --libs jansson 2>/dev/null),-ljansson)
UV_LIBS      ?= $(or $(call find_archive,libuv_a.a libuv.a),$(shared_uv))
JANSSON_LIBS ?= $(or $(call find_archive,libjansson.a),$(shared_jansson))
# Modules are linked with the shared libuv. The static one is not position-independent code, so it
# cannot become part of a module, which is a shared library.
MODULE_UV_LIBS ?= $(if $(filter %.a,$(UV_LIBS)),$(shared_uv),$(UV_LIBS))
# libsodium authenticates the rendezvous. Without its header, crun is built without it.
HAVE_SODIUM := $(shell printf '\043include <sodium.h>\n' | \
    $(CC) $(CPPFLAGS) -E -x c - >/dev/null 2>&1 && echo yes)
SODIUM_LIBS ?= $(if $(HAVE_SODIUM),$(or $(call find_archive,libsodium.a),-lsodium))
UV_LIBS := $(UV_LIBS)
JANSSON_LIBS := $(JANSSON_LIBS)
MODULE_UV_LIBS := $(MODULE_UV_LIBS)
SODIUM_LIBS := $(SODIUM_LIBS)
CHECK_LIBS   ?= $(or $(shell $(PKG_CONFIG) --libs check 2>/dev/null),-lcheck)

# Gloo: Debian's libgloo-dev has no pkg-config file.
gloo_header := $(firstword $(wildcard /usr/include/gloo/context.h \
                 /usr/local/include/gloo/context.h))
have_CXX    := $(shell command -v $(firstword $(CXX)) >/dev/null && echo yes)
HAVE_GLOO   := $(if $(filter no,$(GLOO)),,$(if $(gloo_header),$(have_CXX)))
no_gloo_why := gloo/context.h or a C++ compiler was not found (Debian: libgloo-dev g++)
no_gloo_why := $(if $(filter no,$(GLOO)),GLOO=no,$(no_gloo_why))
ifeq ($(GLOO)$(HAVE_GLOO),yes)
$(error GLOO=yes, but $(no_gloo_why))
endif

# CUDA and NCCL: CUDA_HOME and NCCL_HOME, the usual places, or a Python "nvidia" package. Only
# headers are needed; the libraries are loaded when a program asks for them.
hash := \#
# The first folder PLACE/include that has the header $(2); $(1) is the list of places.
find_include = $(firstword $(patsubst %/$(2),%,$(wildcard $(1:%=%/include/$(2)))))
ifneq ($(NCCL),no)
find_python_nvidia := import importlib.util as u; s = u.find_spec("nvidia"); \
                      print(*(s.submodule_search_locations if s else []))
python_nvidia := $(shell python3 -c '$(find_python_nvidia)' 2>/dev/null)
cuda_places   := $(CUDA_HOME) $(CUDA_PATH) /usr/local/cuda /opt/cuda /usr/lib/cuda /usr \
                 $(foreach d,$(python_nvidia),$(wildcard $(d)/cu[0-9]*) $(d)/cuda_runtime)
nccl_places   := $(NCCL_HOME) $(CUDA_HOME) $(CUDA_PATH) /usr/local /usr/local/cuda /opt/nccl \
                 /opt/cuda /usr $(foreach d,$(python_nvidia),$(d)/nccl)
CUDA_INCLUDE  := $(call find_include,$(cuda_places),cuda_runtime.h)
NCCL_INCLUDE  := $(call find_include,$(nccl_places),nccl.h)
# Python wheels have what these headers include in folders of its own.
cuda_parts    := $(foreach d,$(python_nvidia),$(wildcard $(d)/cuda_nvcc/include \
                     $(d)/cuda_cccl/include $(d)/cu[0-9]*/include/cccl))
NCCL_CPPFLAGS := $(foreach d,$(CUDA_INCLUDE) $(NCCL_INCLUDE) $(cuda_parts),-isystem $(d))
ifneq ($(and $(CUDA_INCLUDE),$(NCCL_INCLUDE)),)
# "compiles", or the name of the header that is missing.
nccl_source        := $(hash)include <cuda_runtime.h>\n$(hash)include <nccl.h>\n
nccl_compile       := $(CC) $(NCCL_CPPFLAGS) -fsyntax-only -x c -
missing_header     := s/^compiles$$/&/p; s/.*fatal error: [^a-z]*\([a-zA-Z0-9_/.]*\).*/\1/p
nccl_compiler_says := $(shell \
    { printf '$(nccl_source)' | $(nccl_compile) && echo compiles; } 2>&1 | \
    sed -n '$(missing_header)' | head -n 1)
endif
endif
HAVE_NCCL     := $(if $(filter compiles,$(nccl_compiler_says)),yes)
nccl_wheels   := wheels that have it: nvidia-cuda-crt, nvidia-cuda-cccl, nvidia-cuda-nvcc-cu12
ifeq ($(NCCL),no)
no_nccl_why := NCCL=no
else ifeq ($(CUDA_INCLUDE),)
no_nccl_why := no cuda_runtime.h; set CUDA_HOME$(if $(NCCL_INCLUDE),, and NCCL_HOME)
else ifeq ($(NCCL_INCLUDE),)
no_nccl_why := no nccl.h; set NCCL_HOME
else
no_nccl_why := $(CUDA_INCLUDE) lacks $(nccl_compiler_says)
no_nccl_why := $(no_nccl_why)$(if $(python_nvidia), ($(nccl_wheels)))
endif
ifeq ($(NCCL)$(HAVE_NCCL),yes)
$(error NCCL=yes, but $(no_nccl_why))
endif

# HIP and RCCL: ROCM_HOME and RCCL_HOME, or the usual places. Only headers are needed here, too.
ifneq ($(RCCL),no)
rocm_places   := $(ROCM_HOME) $(ROCM_PATH) /opt/rocm /usr
HIP_INCLUDE   := $(call find_include,$(rocm_places),hip/hip_runtime_api.h)
RCCL_INCLUDE  := $(call find_include,$(RCCL_HOME) $(rocm_places),rccl/rccl.h)
rocm_includes := $(filter-out /usr/include,$(HIP_INCLUDE) $(RCCL_INCLUDE))
RCCL_CPPFLAGS := -D__HIP_PLATFORM_AMD__ $(foreach d,$(rocm_includes),-isystem $(d))
rccl_source   := $(hash)include <hip/hip_runtime_api.h>\n$(hash)include <rccl/rccl.h>\n
rccl_compile  := $(CC) $(RCCL_CPPFLAGS) -fsyntax-only -x c -
rccl_compiles := $(if $(and $(HIP_INCLUDE),$(RCCL_INCLUDE)),$(shell \
    printf '$(rccl_source)' | $(rccl_compile) >/dev/null 2>&1 && echo yes))
endif
HAVE_RCCL     := $(rccl_compiles)
ifeq ($(RCCL),no)
no_rccl_why   := RCCL=no
else ifeq ($(HIP_INCLUDE),)
no_rccl_why   := no hip/hip_runtime_api.h; set ROCM_HOME$(if $(RCCL_INCLUDE),, and RCCL_HOME)
else ifeq ($(RCCL_INCLUDE),)
no_rccl_why   := no rccl/rccl.h; set RCCL_HOME
else
no_rccl_why   := the headers of $(HIP_INCLUDE) do not compile
endif
ifeq ($(RCCL)$(HAVE_RCCL),yes)
$(error RCCL=yes, but $(no_rccl_why))
endif

# MPI: the flags that the compiler wrapper MPICC adds, or those of pkg-config. The module is built
# for the wrapper's MPI: MPICC=mpicc.mpich where Open MPI is installed, too.
MPICC ?= mpicc
ifneq ($(MPI),no)
mpi_flags     := $(PKG_CONFIG) --cflags --libs
mpi_words     := $(or $(shell $(MPICC) -show 2>/dev/null),\
                     $(shell $(mpi_flags) ompi-c 2>/dev/null || $(mpi_flags) mpich 2>/dev/null))
MPI_CPPFLAGS  := $(patsubst -I%,-isystem %,$(filter -I% -D%,$(mpi_words)))
MPI_LIBS      := $(filter -L% -l% -Wl$(comma)-rpath%,$(mpi_words))
mpi_compile   := $(CC) $(MPI_CPPFLAGS) -fsyntax-only -x c -
mpi_compiles  := $(if $(mpi_words),$(shell \
    printf '$(hash)include <mpi.h>\n' | $(mpi_compile) >/dev/null 2>&1 && echo yes))
endif
HAVE_MPI      := $(mpi_compiles)
no_mpicc_why  := no $(MPICC); set MPICC (Debian: libopenmpi-dev or libmpich-dev)
no_mpi_why    := $(if $(mpi_words),no mpi.h where $(MPICC) looks for it,$(no_mpicc_why))
no_mpi_why    := $(if $(filter no,$(MPI)),MPI=no,$(no_mpi_why))
ifeq ($(MPI)$(HAVE_MPI),yes)
$(error MPI=yes, but $(no_mpi_why))
endif

detect_text := bundled=$(BUNDLED) uv=$(UV_LIBS) jansson=$(JANSSON_LIBS) \
               sodium=$(HAVE_SODIUM) $(SODIUM_LIBS) gloo=$(HAVE_GLOO) \
               nccl=$(HAVE_NCCL) $(CUDA_INCLUDE) $(NCCL_INCLUDE) \
               rccl=$(HAVE_RCCL) $(RCCL_CPPFLAGS) mpi=$(HAVE_MPI) $(MPI_CPPFLAGS) $(MPI_LIBS)
