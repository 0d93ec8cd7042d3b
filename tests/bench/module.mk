# Benchmarks: each prints a ratio against a peer that ran in the same run. Never part of `check`.
bench_programs := $(BUILD)/tests/bench/spawn_floor $(BUILD)/tests/bench/launch
exits_programs := $(BUILD)/tests/bench/instant_exits $(BUILD)/tests/bench/exit_with

$(BUILD)/tests/bench/%: $(BUILD)/obj/tests/bench/%.o
	$(call link,)

$(BUILD)/tests/bench/instant_exits: $(call rooms,agent status rendezvous inspect store base)
$(BUILD)/tests/bench/instant_exits: LDLIBS += $(SODIUM_LIBS) $(UV_LIBS) $(JANSSON_LIBS)
$(BUILD)/tests/bench/exit_with: LDFLAGS += -static

bench-launch: $(bench_programs) programs ## launching N workers, against torchrun, mpirun and hydra
	$(Q)BUILD=$(BUILD) $(BUILD)/tests/bench/launch

$(BUILD)/tests/bench/restart: $(call rooms,base)
$(BUILD)/tests/bench/restart: LDFLAGS += -static

bench-restart: $(BUILD)/tests/bench/restart programs ## from a death to the replacement; torchrun
	$(Q)BUILD=$(BUILD) $(BUILD)/tests/bench/restart

EXITS ?= 20000
bench-exits: $(exits_programs) ## EXITS=20000 workers that exit at once: none lost; the cost of one
	$(Q)BUILD=$(BUILD) $(BUILD)/tests/bench/instant_exits --count $(EXITS)
	$(Q)BUILD=$(BUILD) $(BUILD)/tests/bench/instant_exits --count $(EXITS) --stretch

$(BUILD)/tests/bench/store: $(call objects,tests/bench/store_peers.c) $(call rooms,store base)
$(BUILD)/tests/bench/store: LDLIBS += $(UV_LIBS) -lm
SECTIONS ?=
bench_store := $(BUILD)/tests/bench/store $(BUILD)/bin/crun-store
bench-store: $(bench_store) ## the store against torch's, Redis and a bare echo; SECTIONS=
	$(Q)BUILD=$(BUILD) $(BUILD)/tests/bench/store $(SECTIONS)

.PHONY: bench-launch bench-exits bench-restart bench-store

# LEVELS: how many nested cgroups the leftover has. By hand: it takes a cgroup that is delegated.
LEVELS ?= 300
bench-leftovers: programs ## a launch beside what a killed launcher has left, and without it
	$(Q)BUILD=$(BUILD) tests/bench/leftovers.py $(LEVELS)
.PHONY: bench-leftovers

$(BUILD)/tests/bench/rendezvous: $(call rooms,rendezvous inspect store base)
$(BUILD)/tests/bench/rendezvous: LDLIBS += $(SODIUM_LIBS) $(UV_LIBS) $(JANSSON_LIBS)
bench-rendezvous: $(BUILD)/tests/bench/rendezvous ## thousands of members against one coordinator
	$(Q)$<
	$(Q)$< --secret
bench-relays: $(BUILD)/tests/bench/rendezvous ## 100,000 members behind relays
	$(Q)$< --relays
.PHONY: bench-rendezvous bench-relays

$(BUILD)/tests/bench/handshake: $(call rooms,rendezvous inspect store base)
$(BUILD)/tests/bench/handshake: LDLIBS += $(SODIUM_LIBS) $(UV_LIBS) $(JANSSON_LIBS)
bench-handshake: $(BUILD)/tests/bench/handshake ## what authenticating costs: the curve, MUNGE
	$(Q)$<
.PHONY: bench-handshake

$(BUILD)/tests/bench/gateway: $(call rooms,rendezvous inspect store base)
$(BUILD)/tests/bench/gateway: LDLIBS += $(SODIUM_LIBS) $(UV_LIBS) $(JANSSON_LIBS)
bench-gateway: $(BUILD)/tests/bench/gateway ## --store-gateway: a request; 4,096 workers, 512 nodes
	$(Q)$<
.PHONY: bench-gateway

$(BUILD)/tests/bench/coordinator: $(call rooms,rendezvous inspect store base)
$(BUILD)/tests/bench/coordinator: LDLIBS += $(SODIUM_LIBS) $(UV_LIBS) $(JANSSON_LIBS)
bench-coordinator: $(BUILD)/tests/bench/coordinator ## the rules alone with 100,000 members
	$(Q)$<
.PHONY: bench-coordinator

$(BUILD)/tests/bench/behind: $(call objects,contract/progress.c) \
    $(call rooms,rendezvous inspect store base)
$(BUILD)/tests/bench/behind: LDLIBS += $(UV_LIBS) $(JANSSON_LIBS)
bench-behind: $(BUILD)/tests/bench/behind ## to the name of the rank that holds up 4 to 1,000 others
	$(Q)$<
.PHONY: bench-behind

crunrt_benches := $(BUILD)/tests/bench/all_reduce $(BUILD)/tests/bench/step
$(crunrt_benches): $(BUILD)/tests/bench/%: $(BUILD)/obj/tests/bench/%.o $(BUILD)/lib/libcrunrt.so
	$(call link_crunrt,../../lib)

bench-crunrt: $(crunrt_benches) backends programs ## all-reduce against torch's Gloo; a step
	$(Q)BUILD=$(BUILD) tests/bench/bench_crunrt.py
.PHONY: bench-crunrt
bench-in-place: programs backends ## a killed worker: the others go on in place, or all start anew
	$(Q)BUILD=$(BUILD) tests/bench/in_place.py
.PHONY: bench-in-place
$(BUILD)/tests/bench/bare_relay: LDFLAGS += -static
bench-output: $(BUILD)/tests/bench/bare_relay programs ## lines with prefixes; a bare relay; hydra
	$(Q)BUILD=$(BUILD) tests/bench/output.py
.PHONY: bench-output
bench-nodes: programs ## several launchers as nodes: start, failures, losses; torchrun beside it
	$(Q)BUILD=$(BUILD) tests/bench/nodes.py
.PHONY: bench-nodes

# BENCH_PYTHON: a Python with torch, whose torchrun and TCPStore are the peers. FIGURES: the folder
# of benchmarks.json and the pictures; docs/benchmarks.md changes only with the default. To draw, it
# takes Debian's python3-matplotlib.
BENCH_PYTHON ?=
FIGURES ?= docs/figures
figures_python := /usr/bin/python3
measured := $(patsubst %,$(BUILD)/tests/bench/%,launch spawn_floor restart store rendezvous)
bench-figures: $(measured) programs backends ## those with peers, as JSON and pictures
	$(Q)make/deps.sh bench || echo 'The figures will be measured, but not drawn.' >&2
	$(Q)BUILD=$(BUILD) tests/bench/measure.py $(FIGURES) \
	    $(if $(BENCH_PYTHON),--python $(BENCH_PYTHON))
	-$(Q)$(MAKE) --no-print-directory figures

figures: ## the pictures and their section of docs/benchmarks.md again, from the JSON
	$(Q)$(figures_python) tests/bench/figures.py $(FIGURES)
.PHONY: bench-figures figures

# One after the other: two at once would measure each other. bench-figures runs launch, restart,
# rendezvous, most of store, and in-place.
bench: ## every benchmark, some minutes; JSON and pictures in FIGURES=docs/figures
	$(Q)for b in figures exits coordinator behind gateway crunrt output; do \
	    $(MAKE) --no-print-directory bench-$$b || exit 1; done
	$(Q)$(MAKE) --no-print-directory bench-store SECTIONS="idle values memory notice"
.PHONY: bench

# DEATHS: how often a rank is killed in each way of recovery.
bench-torch: all ## recovery of PyTorch beside restarts, torchrun and torchft; starts of launchers
	$(Q)python=$(or $(BENCH_PYTHON),$$(TORCH=$(TORCH) tests/interop/modern_venv.sh \
	    torchft-nightly)) && BUILD=$(BUILD) tests/bench/torch_recovery.py $$python $(DEATHS)
.PHONY: bench-torch

bench_host_nccl := $(BUILD)/tests/host_nccl
nccl_layer := $(BUILD)/tests/bench/nccl_layer
$(call objects,tests/bench/nccl_layer.c): extra_CPPFLAGS = $(NCCL_CPPFLAGS)
$(nccl_layer): $(BUILD)/obj/tests/bench/nccl_layer.o $(bench_host_nccl)/libnccl.so.2 \
               $(BUILD)/lib/libcrunrt.so
	$(call say,LINK,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(ours_LDFLAGS) $(LDFLAGS) -Wl,-rpath,'$$ORIGIN/../host_nccl:$$ORIGIN/../../lib' \
	    -o $@ $< -L$(BUILD)/lib -lcrunrt -L$(bench_host_nccl) -l:libnccl.so.2 -lcudart -lm $(LDLIBS)

bench-nccl: all $(nccl_layer) ## the cost of the nccl backend's layer, on the host NCCL
	$(Q)CRUNRT_NCCL_LIBRARY=$(abspath $(bench_host_nccl))/libnccl.so.2 CRUNRT_ALLOW_FAKE_NCCL=1 \
	    CRUNRT_CUDA_LIBRARY=$(abspath $(bench_host_nccl))/libcuda.so.1 HOST_NCCL_RACE=off \
	    $(BUILD)/bin/crun --standalone --nproc-per-node 1 $(nccl_layer)
.PHONY: bench-nccl

$(BUILD)/tests/bench/stamp: LDFLAGS += -static
bench-hosts: $(BUILD)/tests/bench/stamp programs ## crun --hosts on 2 to 64 namespaces, beside hydra
	$(Q)BUILD=$(BUILD) tests/bench/hosts.py
.PHONY: bench-hosts

# OLD: the commit to compare with; the default is the one before the rooms were divided.
bench_compared := $(patsubst %,$(BUILD)/tests/bench/%,launch spawn_floor restart store rendezvous)
bench-compare: $(bench_compared) programs ## this build and that of commit OLD=, in turn; 4 minutes
	$(Q)BUILD=$(BUILD) tests/bench/compare.py $(if $(OLD),--old $(OLD)) $(COMPARE)
.PHONY: bench-compare
