# make install / uninstall, with DESTDIR and PREFIX.
#
# Another program is called crun, too: the OCI runtime. To install beside it use PROGRAM_PREFIX,
# which is put in front of the name of each program, manual page and completion, or another
# PREFIX. All files and new folders are noted in $(libdir)/crunrt/installed; uninstall removes
# what is noted there.
PREFIX         ?= /usr/local
bindir         ?= $(PREFIX)/bin
libdir         ?= $(PREFIX)/lib
includedir     ?= $(PREFIX)/include
mandir         ?= $(PREFIX)/share/man
completiondir  ?= $(PREFIX)/share/bash-completion/completions
unitdir        ?= $(PREFIX)/lib/systemd/system
PROGRAM_PREFIX ?=

# Programs that are built with crunrt.pc find the library at run time where the linker found it.
crunrt_rpath = $(if $(filter /usr/lib /usr/lib/%,$(libdir)),, -Wl$(comma)-rpath$(comma)$${libdir})

installed_note = $(libdir)/crunrt/installed

completions    = $(notdir $(wildcard docs/completion/*.bash))
installed_name = $(PROGRAM_PREFIX)$(basename $(c))

# What is installed: one line "mode source destination" per file.
units := crun-agent.service crun-agent-jobs.service

define manifest
$(foreach p,$(wildcard $(BUILD)/bin/*),755 $(p) $(bindir)/$(PROGRAM_PREFIX)$(notdir $(p)),)
755 $(BUILD)/lib/$(crunrt_SONAME) $(libdir)/$(crunrt_SONAME),
link $(crunrt_SONAME) $(libdir)/libcrunrt.so,
644 $(BUILD)/lib/libcrunrt.a $(libdir)/libcrunrt.a,
$(foreach b,$(wildcard $(BUILD)/lib/crunrt/*.so),755 $(b) $(libdir)/crunrt/$(notdir $(b)),)
755 $(crunmpi)/lib/libmpi.so $(libdir)/crunmpi/lib/libmpi.so,
644 worker_runtime/mpi/mpi.h $(libdir)/crunmpi/include/mpi.h,
644 worker_runtime/include/crunrt.h $(includedir)/crunrt.h,
644 $(BUILD)/crunrt.pc $(libdir)/pkgconfig/crunrt.pc,
$(foreach m,$(wildcard docs/*.1),644 $(m) $(mandir)/man1/$(PROGRAM_PREFIX)$(notdir $(m)),)
$(foreach m,$(wildcard docs/*.3),644 $(m) $(mandir)/man3/$(notdir $(m)),)
$(foreach c,$(completions),644 $(BUILD)/completion/$(c) $(completiondir)/$(installed_name),)
$(foreach u,$(units),644 $(BUILD)/$(u) $(unitdir)/$(PROGRAM_PREFIX)$(u),)
endef

# One make after the other, so that the second one sees what the first one built.
install: ## install; honours DESTDIR, PREFIX, PROGRAM_PREFIX
	$(Q)$(MAKE) --no-print-directory all
	$(Q)$(MAKE) --no-print-directory install-only

pc_values = -e 's|@prefix@|$(PREFIX)|g' -e 's|@libdir@|$(libdir)|g' \
            -e 's|@includedir@|$(includedir)|g' -e 's|@version@|$(VERSION)|g' \
            -e 's|@rpath@|$(crunrt_rpath)|'
unit_values = s|^ExecStart=crun-agent|ExecStart=$(bindir)/$(PROGRAM_PREFIX)crun-agent|
completion_values = s/^\(complete .*\) \(crun[a-z-]*\)$$/\1 $(PROGRAM_PREFIX)\2/

install-only: ## install what is built already
	$(Q)mkdir -p $(BUILD)/completion
	$(Q)sed $(pc_values) worker_runtime/crunrt.pc.in > $(BUILD)/crunrt.pc
	$(Q)for u in $(units); do sed '$(unit_values)' operator/$$u > $(BUILD)/$$u; done
	$(Q)for c in $(completions); do \
	    sed '$(completion_values)' docs/completion/$$c > $(BUILD)/completion/$$c; done
	$(Q)printf '%s\n' '$(subst $(comma),' ',$(strip $(manifest)))' | \
	    make/install.sh '$(DESTDIR)' $(installed_note)

uninstall: ## remove what install put there, and the folders that it made
	$(Q)make/install.sh --remove '$(DESTDIR)' $(installed_note)

.PHONY: install install-only uninstall
