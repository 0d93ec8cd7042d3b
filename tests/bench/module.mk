# Benchmarks: each prints a ratio against a peer that ran in the same run. Never part of `check`.
bench_programs := $(BUILD)/tests/bench/spawn_floor $(BUILD)/tests/bench/launch

$(BUILD)/tests/bench/%: $(BUILD)/obj/tests/bench/%.o
	$(call say,LINK,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(ours_LDFLAGS) $(LDFLAGS) -o $@ $^ $(LDLIBS)

bench-launch: $(bench_programs) programs ## launching N workers, against torchrun, mpirun and hydra
	$(Q)BUILD=$(BUILD) $(BUILD)/tests/bench/launch

.PHONY: bench-launch
