# The real programs with an allocator that fails on demand, for
# tests/fault/test_failing_allocator*.py.
failing_functions := malloc calloc realloc posix_memalign aligned_alloc strdup strndup vasprintf \
                     asprintf fopen fdopen open_memstream opendir fdopendir getaddrinfo
failing_LDFLAGS   := $(foreach f,$(failing_functions),-Wl,--wrap=$(f))
failing_allocator := $(call objects,tests/failing_allocator/failing_allocator.c)
failing_programs  := $(patsubst %,$(BUILD)/tests/failing/%,crun crun-store crun-agent worker)
test_programs     += $(failing_programs)

$(BUILD)/tests/failing/crun: $(call objects,launcher/crun.c) \
    $(call rooms,launcher agent status remote rendezvous inspect store base)
$(BUILD)/tests/failing/crun-store: $(call objects,$(store_program_SRCS)) $(call rooms,store base)
$(BUILD)/tests/failing/crun-agent: $(call objects,$(operator_SRCS)) \
    $(call rooms,status remote rendezvous inspect store base)
$(BUILD)/tests/failing/worker: $(call objects,tests/failing_allocator/worker.c $(crunrt_SRCS))

$(failing_programs): $(BUILD)/tests/failing/%: $(failing_allocator)
	$(call say,LINK,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(ours_LDFLAGS) $(failing_LDFLAGS) $(LDFLAGS) -o $@ $(filter %.o,$^) $(filter %.a,$^) \
	    $(program_LIBS) $(LDLIBS)

check-allocator: all $(failing_programs) ## let every single allocation fail once; some minutes
	$(Q)for test in tests/fault/test_failing_allocator*.py; do \
	    CRUN_TEST_EVERY_ALLOCATION=1 BUILD=$(BUILD) PYTHONPATH=tests/lib $$test; \
	    case $$? in 0 | 77) ;; *) exit 1 ;; esac; \
	done
.PHONY: check-allocator
