# What this machine has. Every answer can be overridden on the command line.

PKG_CONFIG ?= pkg-config
UV_LIBS      ?= $(or $(shell $(PKG_CONFIG) --libs libuv 2>/dev/null),-luv)
JANSSON_LIBS ?= $(or $(shell $(PKG_CONFIG) --libs jansson 2>/dev/null),-ljansson)
CHECK_LIBS   ?= $(or $(shell $(PKG_CONFIG) --libs check 2>/dev/null),-lcheck)

# Gloo: Debian's libgloo-dev has no pkg-config file.
gloo_header := $(firstword $(wildcard /usr/include/gloo/context.h /usr/local/include/gloo/context.h))
HAVE_GLOO   := $(if $(filter no,$(GLOO)),,$(if $(gloo_header),yes))

# CUDA and NCCL: CUDA_HOME and NCCL_HOME, the usual places, or a Python "nvidia" package.
python_nvidia := $(shell python3 -c 'import importlib.util as u; s = u.find_spec("nvidia"); print(next(iter(s.submodule_search_locations)) if s else "")' 2>/dev/null)
CUDA_INCLUDE  := $(firstword $(patsubst %/cuda_runtime.h,%,$(wildcard $(foreach d,$(CUDA_HOME) $(CUDA_PATH) /usr/local/cuda /opt/cuda /usr/lib/cuda /usr $(python_nvidia)/cuda_runtime $(python_nvidia)/cu13,$(d)/include/cuda_runtime.h))))
NCCL_INCLUDE  := $(firstword $(patsubst %/nccl.h,%,$(wildcard $(foreach d,$(NCCL_HOME) $(CUDA_HOME) /usr/local /usr/local/cuda /usr $(python_nvidia)/nccl,$(d)/include/nccl.h))))
HAVE_NCCL     := $(if $(filter no,$(NCCL)),,$(if $(CUDA_INCLUDE),$(if $(NCCL_INCLUDE),yes)))
ifeq ($(NCCL)$(HAVE_NCCL),yes)
$(error NCCL=yes, but no cuda_runtime.h and nccl.h were found; set CUDA_HOME and NCCL_HOME)
endif

detect_text := gloo=$(HAVE_GLOO) nccl=$(HAVE_NCCL) $(CUDA_INCLUDE) $(NCCL_INCLUDE)
