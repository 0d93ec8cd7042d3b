# What this machine has. Every answer can be overridden on the command line.

PKG_CONFIG ?= pkg-config
UV_LIBS      ?= $(or $(shell $(PKG_CONFIG) --libs libuv 2>/dev/null),-luv)
JANSSON_LIBS ?= $(or $(shell $(PKG_CONFIG) --libs jansson 2>/dev/null),-ljansson)
CHECK_LIBS   ?= $(or $(shell $(PKG_CONFIG) --libs check 2>/dev/null),-lcheck)

# Gloo: Debian's libgloo-dev has no pkg-config file.
gloo_header := $(firstword $(wildcard /usr/include/gloo/context.h /usr/local/include/gloo/context.h))
HAVE_GLOO   := $(if $(filter no,$(GLOO)),,$(if $(gloo_header),$(shell command -v $(firstword $(CXX)) >/dev/null && echo yes)))
ifeq ($(GLOO)$(HAVE_GLOO),yes)
$(error GLOO=yes, but gloo/context.h or a C++ compiler was not found; install libgloo-dev and g++)
endif

# CUDA and NCCL: CUDA_HOME and NCCL_HOME, the usual places, or a Python "nvidia" package. Headers are
# all that it takes; the libraries are loaded when a program asks for them.
hash := \#
ifneq ($(NCCL),no)
python_nvidia := $(shell python3 -c 'import importlib.util as u; s = u.find_spec("nvidia"); print(*(s.submodule_search_locations if s else []))' 2>/dev/null)
cuda_places   := $(CUDA_HOME) $(CUDA_PATH) /usr/local/cuda /opt/cuda /usr/lib/cuda /usr \
                 $(foreach d,$(python_nvidia),$(wildcard $(d)/cu[0-9]*) $(d)/cuda_runtime)
nccl_places   := $(NCCL_HOME) $(CUDA_HOME) $(CUDA_PATH) /usr/local /usr/local/cuda /opt/nccl /opt/cuda /usr \
                 $(foreach d,$(python_nvidia),$(d)/nccl)
CUDA_INCLUDE  := $(firstword $(patsubst %/cuda_runtime.h,%,$(wildcard $(cuda_places:%=%/include/cuda_runtime.h))))
NCCL_INCLUDE  := $(firstword $(patsubst %/nccl.h,%,$(wildcard $(nccl_places:%=%/include/nccl.h))))
# What these include comes in parts where it comes as wheels.
cuda_parts    := $(foreach d,$(python_nvidia),$(wildcard $(d)/cuda_nvcc/include $(d)/cuda_cccl/include $(d)/cu[0-9]*/include/cccl))
NCCL_CPPFLAGS := $(foreach d,$(CUDA_INCLUDE) $(NCCL_INCLUDE) $(cuda_parts),-isystem $(d))
ifneq ($(and $(CUDA_INCLUDE),$(NCCL_INCLUDE)),)
nccl_compiler_says := $(shell { printf '$(hash)include <cuda_runtime.h>\n$(hash)include <nccl.h>\n' | $(CC) $(NCCL_CPPFLAGS) -fsyntax-only -x c - && echo compiles; } 2>&1 | \
                      sed -n 's/^compiles$$/&/p; s/.*fatal error: [^a-z]*\([a-zA-Z0-9_/.]*\).*/\1/p' | head -n 1)
endif
endif
HAVE_NCCL     := $(if $(filter compiles,$(nccl_compiler_says)),yes)
# Why not, for one clear line.
ifeq ($(NCCL),no)
no_nccl_why := NCCL=no
else ifeq ($(CUDA_INCLUDE),)
no_nccl_why := no cuda_runtime.h; set CUDA_HOME$(if $(NCCL_INCLUDE),, and NCCL_HOME)
else ifeq ($(NCCL_INCLUDE),)
no_nccl_why := no nccl.h; set NCCL_HOME
else
no_nccl_why := $(CUDA_INCLUDE) lacks $(nccl_compiler_says)$(if $(python_nvidia), (wheels that bring it: nvidia-cuda-crt, nvidia-cuda-cccl, nvidia-cuda-nvcc-cu12))
endif
ifeq ($(NCCL)$(HAVE_NCCL),yes)
$(error NCCL=yes, but $(no_nccl_why))
endif

# MPI: what the compiler wrapper MPICC says that it adds, or pkg-config. Which MPI the module is built
# for is the wrapper's: MPICC=mpicc.mpich beside an Open MPI.
MPICC ?= mpicc
ifneq ($(MPI),no)
mpi_wrapper_says := $(shell $(MPICC) -show 2>/dev/null)
mpi_words     := $(or $(mpi_wrapper_says),$(shell $(PKG_CONFIG) --cflags --libs ompi-c 2>/dev/null || $(PKG_CONFIG) --cflags --libs mpich 2>/dev/null))
MPI_CPPFLAGS  := $(patsubst -I%,-isystem %,$(filter -I% -D%,$(mpi_words)))
MPI_LIBS      := $(filter -L% -l% -Wl$(comma)-rpath%,$(mpi_words))
mpi_compiler_says := $(if $(mpi_words),$(shell printf '$(hash)include <mpi.h>\n' | $(CC) $(MPI_CPPFLAGS) -fsyntax-only -x c - >/dev/null 2>&1 && echo compiles))
endif
HAVE_MPI      := $(if $(mpi_compiler_says),yes)
no_mpi_why    := $(if $(filter no,$(MPI)),MPI=no,$(if $(mpi_words),no mpi.h where $(MPICC) looks for it,no $(MPICC); set MPICC (Debian: libopenmpi-dev or libmpich-dev)))
ifeq ($(MPI)$(HAVE_MPI),yes)
$(error MPI=yes, but $(no_mpi_why))
endif

detect_text := gloo=$(HAVE_GLOO) nccl=$(HAVE_NCCL) $(CUDA_INCLUDE) $(NCCL_INCLUDE) mpi=$(HAVE_MPI) $(MPI_CPPFLAGS) $(MPI_LIBS)
