# The simulator of the control plane; see world.h. `make sim SEED=n` replays the schedule with this
# seed and prints what happens in it.
sim_rendezvous := $(BUILD)/tests/sim/sim_rendezvous
$(sim_rendezvous): $(call objects,$(wildcard tests/sim/*.c)) \
                   $(call rooms,agent inspect status rendezvous store base)
	$(call link,$(SODIUM_LIBS) $(UV_LIBS) $(JANSSON_LIBS) -lm)

sim: $(sim_rendezvous) ## millions of simulated schedules; SEED=, SECONDS_MAX=
	$(Q)$< $(if $(SEED),--seed $(SEED) --verbose,\
	    --schedules 1000000000 --seconds-max $(or $(SECONDS_MAX),60))
sim-long: $(sim_rendezvous) ## ten million simulated schedules; SCHEDULES=, JOBS=; can be continued
	$(Q)tests/sim/long.py $< $(BUILD)/sim-long --schedules $(or $(SCHEDULES),10000000) \
	    --jobs $(or $(JOBS),$(shell nproc))
.PHONY: sim sim-long
