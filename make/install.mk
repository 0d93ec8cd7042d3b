# make install / uninstall: honours DESTDIR and PREFIX. Another program is called crun, too (the OCI
# runtime): install beside it with PROGRAM_PREFIX, which goes in front of every program's name and
# manual page, or under another PREFIX.
PREFIX         ?= /usr/local
bindir         ?= $(PREFIX)/bin
libdir         ?= $(PREFIX)/lib
includedir     ?= $(PREFIX)/include
mandir         ?= $(PREFIX)/share/man
completiondir  ?= $(PREFIX)/share/bash-completion/completions
unitdir        ?= $(PREFIX)/lib/systemd/system
PROGRAM_PREFIX ?=

INSTALL ?= install

installed_programs = $(wildcard $(BUILD)/bin/crun $(BUILD)/bin/crun-store $(BUILD)/bin/crun-agent)
installed_backends = $(wildcard $(BUILD)/lib/crunrt/*.so)
man1 = $(wildcard docs/*.1)
man3 = $(wildcard docs/*.3)
completion = $(firstword $(wildcard docs/completion/*))

$(BUILD)/lib/crunrt.pc: worker_runtime/crunrt.pc.in FORCE
	$(Q)mkdir -p $(@D) && sed -e 's|@prefix@|$(PREFIX)|g' -e 's|@libdir@|$(libdir)|g' \
	    -e 's|@includedir@|$(includedir)|g' -e 's|@version@|$(VERSION)|g' $< > $@

# Everything that is installed: one line "mode source destination" a file.
define manifest
$(foreach p,$(installed_programs),755 $(p) $(bindir)/$(PROGRAM_PREFIX)$(notdir $(p)),)
755 $(BUILD)/lib/$(crunrt_SONAME) $(libdir)/$(crunrt_SONAME),
644 $(BUILD)/lib/libcrunrt.a $(libdir)/libcrunrt.a,
$(foreach b,$(installed_backends),755 $(b) $(libdir)/crunrt/$(notdir $(b)),)
755 $(crunmpi)/lib/libmpi.so $(libdir)/crunmpi/lib/libmpi.so,
644 worker_runtime/mpi/mpi.h $(libdir)/crunmpi/include/mpi.h,
644 worker_runtime/include/crunrt.h $(includedir)/crunrt.h,
644 $(BUILD)/lib/crunrt.pc $(libdir)/pkgconfig/crunrt.pc,
$(foreach m,$(man1),644 $(m) $(mandir)/man1/$(PROGRAM_PREFIX)$(notdir $(m)),)
$(foreach m,$(man3),644 $(m) $(mandir)/man3/$(notdir $(m)),)
644 agent/crun-agent.service $(unitdir)/$(PROGRAM_PREFIX)crun-agent.service,
$(foreach c,$(completion),644 $(c) $(completiondir)/$(PROGRAM_PREFIX)crun,)
endef
manifest_lines = printf '%s\n' '$(subst $(comma), ,$(strip $(manifest)))' | xargs -n 3

install: all $(BUILD)/lib/crunrt.pc ## install; honours DESTDIR, PREFIX, PROGRAM_PREFIX
	$(Q)$(manifest_lines) | while read -r mode from to; do \
	    $(INSTALL) -D -m $$mode "$$from" "$(DESTDIR)$$to" || exit 1; done
	$(Q)ln -sf $(crunrt_SONAME) $(DESTDIR)$(libdir)/libcrunrt.so

# Removes the files, then the folders that this leaves empty, up to DESTDIR or the root.
uninstall: $(BUILD)/lib/crunrt.pc ## remove what install put there
	$(Q)rm -f $(DESTDIR)$(libdir)/libcrunrt.so
	$(Q)$(manifest_lines) | while read -r mode from to; do \
	    rm -f "$(DESTDIR)$$to"; \
	    (cd "$(DESTDIR)/" && rmdir -p --ignore-fail-on-non-empty ".$$(dirname "$$to")" 2>/dev/null); done; true

.PHONY: install uninstall
