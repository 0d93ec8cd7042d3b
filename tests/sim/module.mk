# The rendezvous under a seeded simulator. SEED= replays one schedule step by step.
sim_rendezvous := $(BUILD)/tests/sim/sim_rendezvous
$(sim_rendezvous): $(call objects,tests/sim/sim_rendezvous.c) $(call rooms,rendezvous store base)
	$(call link,$(UV_LIBS) -lm)

sim: $(sim_rendezvous) ## millions of simulated rendezvous schedules; SEED=, SECONDS_MAX=
	$(Q)$< $(if $(SEED),--seed $(SEED) --verbose,\
	    --schedules 1000000000 --seconds-max $(or $(SECONDS_MAX),60))
.PHONY: sim
