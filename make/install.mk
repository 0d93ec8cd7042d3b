# make install / uninstall: honours DESTDIR and PREFIX.
PREFIX     ?= /usr/local
bindir     ?= $(PREFIX)/bin
libdir     ?= $(PREFIX)/lib
includedir ?= $(PREFIX)/include
mandir     ?= $(PREFIX)/share/man
