launcher_SRCS := $(filter-out launcher/crun.c launcher/crun_doc.c,$(wildcard launcher/*.c))

# The man page and the completion are in the tree, so that installing needs no tool; a test holds them
# to the table.
$(BUILD)/tools/crun-doc: $(call objects,launcher/crun_doc.c) $(call rooms,launcher base)
	$(call say,LINK,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(ours_LDFLAGS) $(LDFLAGS) -o $@ $^ $(JANSSON_LIBS) -lm -ldl $(LDLIBS)

docs: $(BUILD)/tools/crun-doc ## write docs/crun.1 and the shell completion anew
	@mkdir -p docs/completion
	$(Q)$< man > docs/crun.1
	$(Q)$< completion > docs/completion/crun.bash
.PHONY: docs
programs: $(BUILD)/tools/crun-doc
