# The targets that test. `check` is the whole suite; every kind also runs alone.

runner = CI=$(CI) tests/run.py --build $(BUILD)
tested = all $(unit_tests) $(sim_rendezvous) $(fuzz_replays) $(test_programs)
kinds  = unit golden integration fault sim fuzz interop
# `make check` without -j uses every core.
# Recipes that use it begin with "+": make shares its job slots only with recipes that name $(MAKE).
cores  = $(shell nproc 2>/dev/null || echo 1)
again  = $(MAKE) --no-print-directory $(if $(findstring jobserver,$(MAKEFLAGS)),,-j$(cores))
# Interop tests start real torch processes, which have no sanitizers: they run in the plain build
# only.
sanitized_kinds = $(filter-out interop,$(kinds))
sanitized_check = KINDS='$(or $(KINDS),$(sanitized_kinds))' check-all

check: ## install what is missing, build, run every test that this machine can run
	$(Q)make/deps.sh check
	+$(Q)$(again) check-all

check-all: $(tested)
	$(Q)$(runner) $(KINDS)

check-unit: $(unit_tests)
$(filter-out check-unit,$(kinds:%=check-%)): $(tested)
$(kinds:%=check-%):
	$(Q)$(runner) $(@:check-%=%)

check-unit:        ## the unit tests
check-integration: ## real processes on this machine
check-fault:       ## kill -9, SIGSTOP, half-open sockets and worse
check-interop:     ## with real torch: python3-torch, or CRUN_TEST_TORCH_PYTHON
check-sim:         ## simulated rendezvous schedules, seeded
check-fuzz:        ## the fuzzers' corpora
check-golden:      ## command lines and wire bytes, as recorded

check-notices: all ## 1,000 notices at random moments; all ranks save after the same step
	$(Q)NOTICES=$(or $(NOTICES),1000) CK_TIMEOUT_MULTIPLIER=20 $(runner) integration \
	    --filter 'test_python$$'
check-why: all ## 200 hung jobs of 16 ranks; crun-agent why names the odd rank of each
	$(Q)SEEDS=$(or $(SEEDS),200) CK_TIMEOUT_MULTIPLIER=20 $(runner) integration \
	    --filter 'test_why$$'
check-health: all ## 10,000 starts of healthy nodes with all built-in checks; none is refused
	$(Q)HEALTHY_STARTS=$(or $(STARTS),10000) CK_TIMEOUT_MULTIPLIER=20 $(runner) integration \
	    --filter 'test_health$$'
check-kills: all ## the hosting node is killed 50 times, and black-holed 50 times; needs root
	$(Q)BUILD=$(BUILD) PYTHONPATH=tests/lib tests/kills/test_kills.py
.PHONY: check-notices check-why check-health check-kills

asan: ## the tests under AddressSanitizer and UBSan, in build/asan
	$(Q)make/deps.sh check
	+$(Q)CK_TIMEOUT_MULTIPLIER=4 $(again) SANITIZE=address $(sanitized_check)

ubsan: ## the tests under UBSan alone, in build/ubsan
	$(Q)make/deps.sh check
	+$(Q)CK_TIMEOUT_MULTIPLIER=2 $(again) SANITIZE=undefined $(sanitized_check)

tsan: ## the tests under ThreadSanitizer, in build/tsan
	$(Q)make/deps.sh check
	+$(Q)CK_TIMEOUT_MULTIPLIER=6 $(again) SANITIZE=thread $(sanitized_check)

coverage: ## the tests with gcov, in build/coverage; a table of lines and branches
	$(Q)make/deps.sh check
	$(Q)find build/coverage -name '*.gcda' -delete 2>/dev/null || true
	+$(Q)$(again) COVERAGE=1 $(sanitized_check)
	$(Q)make/coverage.py build/coverage

coverage-nccl: ## the nccl backend on the host NCCL with gcov; fails below 95 % of the lines
	+$(Q)$(again) COVERAGE=1 all test-workers
	$(Q)find build/coverage -name '*.gcda' -delete
	$(Q)tests/run.py --build build/coverage integration fault --filter host_nccl
	$(Q)make/coverage.py build/coverage worker_runtime/backends/nccl 95

valgrind: $(unit_tests) ## the unit tests under valgrind
	$(Q)command -v valgrind >/dev/null || { echo 'valgrind is not installed'; exit 1; }
	$(Q)make/valgrind.sh $(unit_tests)

demo: ## install what is missing, build, train on real data through a crash
	$(Q)make/deps.sh build
	+$(Q)$(again) all
	$(Q)BUILD=$(BUILD) examples/demo.sh

.PHONY: check check-all $(kinds:%=check-%) asan ubsan tsan coverage coverage-nccl valgrind \
        demo

# ---- looking at the source ----

# Every C file of the rooms, but for the modules whose headers need not be on this machine.
tidied = $(filter-out worker_runtime/backends/%,$(foreach r,base store rendezvous inspect agent \
           launcher operator worker_runtime,$(wildcard $(r)/*.c $(r)/*/*.c)))
tidy_checks = -*,clang-analyzer-*,-clang-analyzer-security.insecureAPI.*,-clang-analyzer-valist.*
tidy_flags  = -I. -Iworker_runtime/include -D_GNU_SOURCE -DCRUN_VERSION=__FILE__

lint: ## layout and calls; cppcheck, clang-tidy, shellcheck where they are installed
	$(Q)make/lint_arrows.py
	$(Q)make/lint.sh $(tidied)

analyze: ## the static analysers of clang and gcc, to be read with judgement; slow
	$(Q)-clang-tidy --quiet --checks='$(tidy_checks)' $(tidied) -- $(tidy_flags)
	+$(Q)-$(again) BUILD=build/analyze CC=gcc NCCL=no CFLAGS='$(CFLAGS) -fanalyzer' \
	    programs library

# Only changed lines: much is laid out by hand where clang-format would make it harder to read.
SINCE ?= HEAD
format: ## clang-format over the lines changed since the commit SINCE=HEAD
	$(Q)git clang-format --force $(SINCE) -- '*.c' '*.h' '*.cc'

.PHONY: lint analyze format

# ---- a release ----

tarball = build/crun-$(VERSION).tar.gz
dist: ## build/crun-VERSION.tar.gz from the last commit
	$(Q)mkdir -p build
	$(Q)git archive --prefix=crun-$(VERSION)/ HEAD | gzip -9n > $(tarball)
	@echo $(tarball)

distcheck: dist ## unpack the tarball; build, test, install, uninstall there
	$(Q)make/distcheck.sh $(tarball) crun-$(VERSION)

.PHONY: dist distcheck
