status_SRCS := $(wildcard status/*.c) contract/packet.c

# The assembler puts the page into this object.
$(BUILD)/obj/status/page.o: status/page.html
