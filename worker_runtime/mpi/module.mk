# The drop-in mpi.h and libmpi: a prefix of its own, so that MPI_HOME can point at it.
crunmpi := $(BUILD)/lib/crunmpi

library: $(crunmpi)/lib/libmpi.so $(crunmpi)/include/mpi.h

crunmpi_objects := $(call objects,$(wildcard worker_runtime/mpi/*.c))
$(crunmpi)/lib/libmpi.so: $(crunmpi_objects) $(BUILD)/lib/libcrunrt.so
	$(call say,LINK,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(ours_LDFLAGS) $(crunrt_LDFLAGS) $(LDFLAGS) -shared -Wl,-soname,libmpi.so \
	    -Wl,-rpath,'$$ORIGIN/../..' -o $@ $(filter %.o,$^) -L$(BUILD)/lib -lcrunrt $(LDLIBS)

$(crunmpi)/include/mpi.h: worker_runtime/mpi/mpi.h
	@mkdir -p $(@D)
	$(Q)cp $< $@
