# Packages: `make wheel` and `make deb`. Both pack a build of their own, in which the programs have
# libuv and jansson in themselves and need only glibc. The module store_host uses the shared libuv,
# because the static one is not position-independent code.
PACKAGE_BUILD ?= build/package
PACKAGE_OUT   ?= build/dist
MACHINE       ?= $(shell uname -m)
# The static libraries; Debian calls libuv's libuv_a.a.
static_library = $(firstword $(wildcard $(foreach n,$(1),$(foreach d,$(shell $(CC) \
    -print-search-dirs | sed -n 's/^libraries: =//p' | tr : ' '),$(d)/$(n)))))
static_uv      = $(call static_library,libuv_a.a libuv.a)
static_jansson = $(call static_library,libjansson.a)
static_sodium  = $(call static_library,libsodium.a)
# One build at a time, because tests of both packages may ask for it at the same time.
package-build:
	@[ -n '$(static_uv)' ] && [ -n '$(static_jansson)' ] && [ -n '$(static_sodium)' ] || \
	    { echo 'make a package: libuv_a.a, libjansson.a or libsodium.a is missing' \
	           '(Debian: libuv1-dev libjansson-dev libsodium-dev)' >&2; exit 1; }
	$(Q)mkdir -p $(dir $(PACKAGE_BUILD))
	+$(Q)flock $(PACKAGE_BUILD).lock $(again) BUILD=$(PACKAGE_BUILD) MPI=no BUNDLED=yes nccl_hints= \
	    UV_LIBS='$(static_uv)' JANSSON_LIBS='$(static_jansson)' \
	    SODIUM_LIBS='$(static_sodium)' MODULE_UV_LIBS='$(MODULE_UV_LIBS)' \
	    programs library backends

wheel: package-build ## the wheel crun-launcher in build/dist
	$(Q)packaging/wheel.py --build $(PACKAGE_BUILD) --version $(VERSION) --machine $(MACHINE) \
	    --out $(PACKAGE_OUT) --linked $(static_uv) $(static_jansson) $(static_sodium)

.PHONY: package-build wheel

# The wheel for aarch64, by Debian's cross compiler. It has no Gloo and no NCCL module.
AARCH64      := aarch64-linux-gnu-
aarch64_root := $(CURDIR)/build/sysroot-aarch64
aarch64_libs := $(aarch64_root)/usr/lib/aarch64-linux-gnu
wheel-aarch64: ## the wheel for aarch64, with Debian's cross compiler (needs Debian's archive)
	@command -v $(AARCH64)gcc >/dev/null || { echo 'make the wheel for aarch64:' \
	    '$(AARCH64)gcc is missing (Debian: gcc-aarch64-linux-gnu)' >&2; exit 1; }
	$(Q)packaging/sysroot.sh arm64 $(aarch64_root)
	+$(Q)$(MAKE) package-build PACKAGE_BUILD=build/aarch64 LD=$(AARCH64)ld AR=$(AARCH64)ar \
	    CC='$(AARCH64)gcc -isystem $(aarch64_root)/usr/include -B$(aarch64_libs)' \
	    OBJCOPY=$(AARCH64)objcopy GLOO=no NCCL=no UV_LIBS=$(aarch64_libs)/libuv.so
	$(Q)packaging/wheel.py --build build/aarch64 --version $(VERSION) --machine aarch64 \
	    --out $(PACKAGE_OUT) --tools $(AARCH64) --sysroot $(aarch64_root)

check-aarch64: aarch64-tools all wheel-aarch64 ## the aarch64 programs under qemu-user
	$(Q)CRUN_TEST_AARCH64=$(PACKAGE_OUT) $(runner) --jobs 1 integration --filter aarch64
aarch64-tools:
	$(Q)make/deps.sh aarch64
.PHONY: wheel-aarch64 check-aarch64 aarch64-tools

deb: package-build ## the Debian package crun-launcher in build/dist
	$(Q)packaging/deb.py --build $(PACKAGE_BUILD) --version $(VERSION) --out $(PACKAGE_OUT)

.PHONY: deb
