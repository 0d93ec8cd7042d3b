launcher_SRCS := $(filter-out launcher/crun.c,$(wildcard launcher/*.c launcher/*/*.c))

# Manual pages and completions are in the tree, so that installing runs nothing. A test compares
# them with the tables of the programs.
table_programs := crun crun-agent crun-store

docs: $(table_programs:%=$(BUILD)/bin/%) ## write the manual pages and completions of the programs
	@mkdir -p docs/completion
	$(Q)for p in $(table_programs); do \
	    $(BUILD)/bin/$$p --print-manual > docs/$$p.1 && \
	    $(BUILD)/bin/$$p --print-completion bash > docs/completion/$$p.bash || exit 1; done
	$(Q)make/lint_arrows.py --document
.PHONY: docs
