# crun: one Makefile, and a short module.mk per folder. Everything is built outside of the source.
#
#   make                 the default variant, in build/
#   make SANITIZE=…      a variant beside it: address in build/asan (with UBSan), thread in
#                        build/tsan, undefined in build/ubsan
#   make COVERAGE=1      a variant in build/coverage
# CC, CFLAGS, CPPFLAGS, LDFLAGS and LDLIBS of the user are added to those of the project.

.DEFAULT_GOAL := all
SHELL         := /bin/bash
.DELETE_ON_ERROR:

SANITIZE ?=
COVERAGE ?=
V        ?=
NCCL     ?= auto
RCCL     ?= auto
GLOO     ?= auto
MPI      ?= auto

variants := address:asan thread:tsan undefined:ubsan
variant  := $(patsubst $(SANITIZE):%,%,$(filter $(SANITIZE):%,$(variants)))
variant  := $(variant)$(if $(COVERAGE),coverage)
BUILD    ?= build$(if $(variant),/$(variant))
ifneq ($(SANITIZE),)
ifeq ($(filter $(SANITIZE):%,$(variants)),)
$(error SANITIZE=$(SANITIZE) is unknown; use address, thread or undefined)
endif
endif

CC  ?= cc
CXX ?= c++
AR  ?= ar

VERSION := 0.1.0
comma   := ,

WARNINGS := -Wall -Wextra -Wshadow -Wconversion -Wsign-conversion -Wstrict-prototypes \
            -Wmissing-prototypes -Wswitch-enum -Wvla -Wwrite-strings -Wformat=2 -Wundef
WERROR   ?= $(if $(CI),-Werror)
not_for_CXX := -Wstrict-prototypes -Wmissing-prototypes -Wwrite-strings -Wconversion \
               -Wsign-conversion -Wshadow -Wextra
CXX_WARNINGS := $(filter-out $(not_for_CXX),$(WARNINGS))

ours_CPPFLAGS := -I. -Iworker_runtime/include -D_GNU_SOURCE -DCRUN_VERSION='"$(VERSION)"'
ours_CFLAGS   := -std=gnu11 -O2 -g -fPIC -fvisibility=hidden -fno-omit-frame-pointer -pthread
ours_CXXFLAGS := -std=c++17 -O2 -g -fPIC -fvisibility=hidden -pthread
ours_LDFLAGS  := -pthread -Wl,--as-needed -Wl,-z,relro,-z,now
ifneq ($(SANITIZE),)
sanitizers     := $(patsubst address,address$(comma)undefined,$(SANITIZE))
sanitize_flags := -fsanitize=$(sanitizers) -fno-sanitize-recover=all
ours_CFLAGS    := $(filter-out -O2,$(ours_CFLAGS)) -O1 $(sanitize_flags)
ours_CXXFLAGS  := $(filter-out -O2,$(ours_CXXFLAGS)) -O1 $(sanitize_flags)
ours_LDFLAGS   += $(sanitize_flags)
# The code that sanitizers insert confuses gcc's flow analysis; the plain build has these warnings.
ifeq ($(findstring clang,$(CC)),)
WARNINGS       += -Wno-format-truncation -Wno-maybe-uninitialized -Wno-stringop-overflow \
                  -Wno-stringop-truncation
endif
endif
ifneq ($(COVERAGE),)
ours_CFLAGS   := $(filter-out -O2,$(ours_CFLAGS)) -O0 --coverage
ours_CXXFLAGS := $(filter-out -O2,$(ours_CXXFLAGS)) -O0 --coverage
ours_LDFLAGS  += --coverage
endif

Q := $(if $(V),,@)
say = $(if $(V),,@printf '  %-6s %s\n' '$(1)' '$(2)')

# The object of a source file, and the archive of a room.
objects = $(patsubst %,$(BUILD)/obj/%.o,$(basename $(1)))
rooms = $(patsubst %,$(BUILD)/lib/room/lib%.a,$(1))

program_LIBS = $(SODIUM_LIBS) $(UV_LIBS) $(JANSSON_LIBS) -lm -ldl

# The recipe of a program: $(call link,LIBRARIES)
define link
$(call say,LINK,$@)
@mkdir -p $(@D)
$(Q)$(CC) $(ours_LDFLAGS) $(LDFLAGS) -o $@ $^ $(1) $(LDLIBS)
endef

# The same with libcrunrt.so: $(call link_crunrt,FOLDER OF THE LIBRARY FROM THE PROGRAM'S,LIBRARIES)
define link_crunrt
$(call say,LINK,$@)
@mkdir -p $(@D)
$(Q)$(CC) $(ours_LDFLAGS) $(LDFLAGS) -Wl,-rpath,'$$ORIGIN/$(1)' \
    -o $@ $(filter %.o,$^) -L$(BUILD)/lib -lcrunrt $(2) $(LDLIBS)
endef

include make/detect.mk
include base/module.mk store/module.mk rendezvous/module.mk status/module.mk inspect/module.mk
include agent/module.mk launcher/module.mk operator/module.mk remote/module.mk
include worker_runtime/module.mk worker_runtime/mpi/module.mk examples/module.mk tests/module.mk
include make/check.mk make/install.mk packaging/module.mk

all: programs library backends examples ## build everything that this machine can build

clean: ## remove build/
	$(Q)rm -rf build

help: ## list the targets
	@printf 'make TARGET…  (V=1 shows the commands; %s are added to ours)\n\n' \
	    'CC, CFLAGS, CPPFLAGS, LDFLAGS and LDLIBS'
	@sed -n 's/^\([a-z][a-z_-]*\):.*## \(.*\)/  \1\t\2/p' $(filter-out %.d,$(MAKEFILE_LIST)) | \
	    expand -t 22 | sort -u

.PHONY: all clean help programs library backends examples

# ---- compiling ----

# Rebuilds everything when the flags change.
C_flags    = $(ours_CPPFLAGS) $(CPPFLAGS) $(extra_CPPFLAGS) $(ours_CFLAGS) $(WARNINGS) $(WERROR) \
             $(CFLAGS)
CXX_flags  = $(ours_CPPFLAGS) $(CPPFLAGS) $(extra_CPPFLAGS) $(ours_CXXFLAGS) $(CXX_WARNINGS) \
             $(WERROR) $(CXXFLAGS)
flags_text := $(CC) $(C_flags) $(CXX) $(CXX_flags) $(detect_text)
$(BUILD)/flags: FORCE
	@mkdir -p $(@D)
	@printf '%s\n' '$(subst ','\'',$(flags_text))' > $@.new
	@cmp -s $@.new $@ && rm $@.new || mv $@.new $@
FORCE:

# Reports in one line which library is missing, before a compiler does so in a hundred.
$(BUILD)/libraries:
	@mkdir -p $(@D)
	@CC='$(CC)' CXX='$(CXX)' make/deps.sh --tell build
	@touch $@

$(BUILD)/obj/%.o: %.c $(BUILD)/flags | $(BUILD)/libraries
	$(call say,CC,$<)
	@mkdir -p $(@D)
	$(Q)$(CC) $(C_flags) -MMD -MP -c -o $@ $<

$(BUILD)/obj/%.o: %.cc $(BUILD)/flags | $(BUILD)/libraries
	$(call say,CXX,$<)
	@mkdir -p $(@D)
	$(Q)$(CXX) $(CXX_flags) -MMD -MP -c -o $@ $<

# One archive per room; programs and tests link the rooms that they may include.
# q, not r: r replaces a member of the same file name, and two chambers may both have a wait.c.
define room
$(BUILD)/lib/room/lib$(1).a: $(call objects,$($(1)_SRCS))
	@mkdir -p $$(@D)
	$$(Q)rm -f $$@ && $$(AR) qcs $$@ $$^
endef
rooms_built := base store rendezvous remote status inspect agent launcher worker_runtime
$(foreach r,$(rooms_built),$(eval $(call room,$(r))))
programs: $(BUILD)/bin/crun $(BUILD)/bin/crun-store $(BUILD)/bin/crun-agent

$(BUILD)/bin/crun: $(call objects,launcher/crun.c) \
    $(call rooms,launcher agent status remote rendezvous inspect store base)
	$(call link,$(program_LIBS))

$(BUILD)/bin/crun-store: $(call objects,$(store_program_SRCS)) $(call rooms,store base)
	$(call link,$(program_LIBS))

-include $(shell find $(BUILD)/obj -name '*.d' 2>/dev/null)
