# A node without workers, for the tests of the rendezvous.
test_programs += $(BUILD)/tests/nodes/rdzv_node
$(BUILD)/tests/nodes/rdzv_node: $(call objects,tests/nodes/rdzv_node.c) \
    $(call rooms,launcher rendezvous inspect store base)
	$(call link,$(program_LIBS))
