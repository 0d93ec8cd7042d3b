# The simulator of the control plane; see world.h. `make sim SEED=n` replays the schedule with this
# seed and prints what happens in it.
sim_rendezvous := $(BUILD)/tests/sim/sim_rendezvous
$(sim_rendezvous): $(call objects,$(wildcard tests/sim/*.c)) \
                   $(call rooms,agent status rendezvous inspect store base)
	$(call link,$(SODIUM_LIBS) $(UV_LIBS) $(JANSSON_LIBS) -lm)

sim: $(sim_rendezvous) ## millions of simulated schedules; SEED=, SECONDS_MAX=
	$(Q)$< $(if $(SEED),--seed $(SEED) --verbose,\
	    --schedules 1000000000 --seconds-max $(or $(SECONDS_MAX),60))
# The simulator is built once more for long runs, as one optimised program: that makes it a quarter
# faster. With another compiler than gcc, give make its archiver by LTO_AR=.
sim-long: ## ten million simulated schedules; FIRST=, SCHEDULES=, JOBS=; can be continued
	+$(Q)$(MAKE) --no-print-directory BUILD=build/sim AR=$(or $(LTO_AR),gcc-ar) \
	    CFLAGS='$(CFLAGS) -O3 -flto=auto -fno-pie' LDFLAGS='$(LDFLAGS) -no-pie -flto=auto -O3' \
	    build/sim/tests/sim/sim_rendezvous
	$(Q)tests/sim/long.py build/sim/tests/sim/sim_rendezvous $(BUILD)/sim-long \
	    --first $(or $(FIRST),0) --schedules $(or $(SCHEDULES),10000000) \
	    --jobs $(or $(JOBS),$(shell nproc))
.PHONY: sim sim-long
