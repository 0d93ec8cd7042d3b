# crun: one Makefile, one short module.mk a folder, everything out of tree.
#
#   make                 the default variant, in build/
#   make SANITIZE=…      a variant beside it: address -> build/asan (with UBSan), thread -> build/tsan,
#                        undefined -> build/ubsan
#   make COVERAGE=1      build/coverage
# CC, CFLAGS, CPPFLAGS, LDFLAGS and LDLIBS of the user are added to ours, never replaced by them.

.DEFAULT_GOAL := all
SHELL         := /bin/bash
.DELETE_ON_ERROR:

SANITIZE ?=
COVERAGE ?=
V        ?=
NCCL     ?= auto
GLOO     ?= auto
MPI      ?= auto

variants := address:asan thread:tsan undefined:ubsan
variant  := $(patsubst $(SANITIZE):%,%,$(filter $(SANITIZE):%,$(variants)))$(if $(COVERAGE),coverage)
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
WXX      := $(filter-out -Wstrict-prototypes -Wmissing-prototypes -Wwrite-strings -Wconversion -Wsign-conversion -Wshadow -Wextra,$(WARNINGS))

ours_CPPFLAGS := -I. -Iworker_runtime/include -D_GNU_SOURCE -DCRUN_VERSION='"$(VERSION)"'
ours_CFLAGS   := -std=gnu11 -O2 -g -fPIC -fvisibility=hidden -fno-omit-frame-pointer -pthread
ours_CXXFLAGS := -std=c++17 -O2 -g -fPIC -fvisibility=hidden -pthread
ours_LDFLAGS  := -pthread -Wl,--as-needed -Wl,-z,relro,-z,now
ifneq ($(SANITIZE),)
sanitize_flags := -fsanitize=$(patsubst address,address$(comma)undefined,$(SANITIZE)) -fno-sanitize-recover=all
ours_CFLAGS    := $(filter-out -O2,$(ours_CFLAGS)) -O1 $(sanitize_flags)
ours_CXXFLAGS  := $(filter-out -O2,$(ours_CXXFLAGS)) -O1 $(sanitize_flags)
ours_LDFLAGS   += $(sanitize_flags)
# The checks that sanitizers put in confuse gcc's flow analysis; the plain build has these warnings.
WARNINGS       += $(if $(findstring clang,$(CC)),,-Wno-format-truncation -Wno-maybe-uninitialized -Wno-stringop-overflow -Wno-stringop-truncation)
endif
ifneq ($(COVERAGE),)
ours_CFLAGS   := $(filter-out -O2,$(ours_CFLAGS)) -O0 --coverage
ours_CXXFLAGS := $(filter-out -O2,$(ours_CXXFLAGS)) -O0 --coverage
ours_LDFLAGS  += --coverage
endif

Q := $(if $(V),,@)
say = $(if $(V),,@printf '  %-6s %s\n' '$(1)' '$(2)')

# What a source file becomes, and where a room's archive lies.
objects = $(patsubst %,$(BUILD)/obj/%.o,$(basename $(1)))
rooms = $(patsubst %,$(BUILD)/lib/room/lib%.a,$(1))

include make/detect.mk
include base/module.mk store/module.mk rendezvous/module.mk agent/module.mk launcher/module.mk operator/module.mk
include worker_runtime/module.mk worker_runtime/mpi/module.mk examples/module.mk tests/module.mk
include make/check.mk make/install.mk

all: programs library backends examples ## build everything that this machine can build

clean: ## remove build/
	$(Q)rm -rf build

help: ## list the targets
	@printf 'make TARGET…  (V=1 shows the commands; CC, CFLAGS, CPPFLAGS, LDFLAGS and LDLIBS are added to ours)\n\n'
	@sed -n 's/^\([a-z][a-z_-]*\):.*## \(.*\)/  \1\t\2/p' $(filter-out %.d,$(MAKEFILE_LIST)) | expand -t 22 | sort -u

.PHONY: all clean help programs library backends examples

# ---- compiling ----

# Rebuilds everything when the flags change.
flags_text := $(CC) $(CXX) $(ours_CPPFLAGS) $(CPPFLAGS) $(ours_CFLAGS) $(CFLAGS) $(CXXFLAGS) $(WARNINGS) $(WERROR) $(detect_text)
$(BUILD)/flags: FORCE
	@mkdir -p $(@D)
	@printf '%s\n' '$(subst ','\'',$(flags_text))' | cmp -s - $@ || printf '%s\n' '$(subst ','\'',$(flags_text))' > $@
FORCE:

# Says in one line which library is missing, before a compiler says it in a hundred.
$(BUILD)/libraries:
	@mkdir -p $(@D)
	@CC='$(CC)' CXX='$(CXX)' make/deps.sh --tell build
	@touch $@

$(BUILD)/obj/%.o: %.c $(BUILD)/flags | $(BUILD)/libraries
	$(call say,CC,$<)
	@mkdir -p $(@D)
	$(Q)$(CC) $(ours_CPPFLAGS) $(CPPFLAGS) $(extra_CPPFLAGS) $(ours_CFLAGS) $(WARNINGS) $(WERROR) $(CFLAGS) -MMD -MP -c -o $@ $<

$(BUILD)/obj/%.o: %.cc $(BUILD)/flags | $(BUILD)/libraries
	$(call say,CXX,$<)
	@mkdir -p $(@D)
	$(Q)$(CXX) $(ours_CPPFLAGS) $(CPPFLAGS) $(extra_CPPFLAGS) $(ours_CXXFLAGS) $(WXX) $(WERROR) $(CXXFLAGS) -MMD -MP -c -o $@ $<

# One archive a room; programs and tests link the rooms they may know.
define room
$(BUILD)/lib/room/lib$(1).a: $(call objects,$($(1)_SRCS))
	@mkdir -p $$(@D)
	$$(Q)rm -f $$@ && $$(AR) rcs $$@ $$^
endef
$(foreach r,base store rendezvous agent launcher worker_runtime,$(eval $(call room,$(r))))
programs: $(BUILD)/bin/crun $(BUILD)/bin/crun-store $(BUILD)/bin/crun-agent

$(BUILD)/bin/crun: $(call objects,launcher/crun.c) $(call rooms,launcher agent rendezvous store base)
	$(call say,LINK,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(ours_LDFLAGS) $(LDFLAGS) -o $@ $^ $(UV_LIBS) $(JANSSON_LIBS) -lm -ldl $(LDLIBS)

$(BUILD)/bin/crun-store: $(call objects,$(store_program_SRCS)) $(call rooms,store base)
	$(call say,LINK,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(ours_LDFLAGS) $(LDFLAGS) -o $@ $^ $(UV_LIBS) $(JANSSON_LIBS) -lm -ldl $(LDLIBS)

-include $(shell find $(BUILD)/obj -name '*.d' 2>/dev/null)
