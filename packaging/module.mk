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
	    SODIUM_LIBS='$(static_sodium)' MODULE_UV_LIBS='$(UV_LIBS)' \
	    programs library backends

wheel: package-build ## the wheel crun-launcher in build/dist
	$(Q)packaging/wheel.py --build $(PACKAGE_BUILD) --version $(VERSION) --machine $(MACHINE) \
	    --out $(PACKAGE_OUT) --linked $(static_uv) $(static_jansson) $(static_sodium)

.PHONY: package-build wheel

deb: package-build ## the Debian package crun-launcher in build/dist
	$(Q)packaging/deb.py --build $(PACKAGE_BUILD) --version $(VERSION) --out $(PACKAGE_OUT)

.PHONY: deb
