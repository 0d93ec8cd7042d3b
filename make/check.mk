# The targets that test. `check` is the whole suite; every kind also runs alone.

runner = CI=$(CI) tests/run.py --build $(BUILD)
tested = all $(unit_tests) $(sim_rendezvous) $(fuzz_replays) $(test_programs)

check: ## install what is missing, build, run every test that this machine can run
	$(Q)make/deps.sh check
	$(Q)$(MAKE) --no-print-directory check-all

check-all: $(tested)
	$(Q)$(runner)

check-integration check-fault check-golden check-fuzz check-interop: $(tested)
	$(Q)$(runner) $(@:check-%=%)

asan: ## every test under AddressSanitizer and UBSan, in build/asan
	$(Q)make/deps.sh check
	$(Q)CK_TIMEOUT_MULTIPLIER=4 $(MAKE) --no-print-directory SANITIZE=address check-all

tsan: ## every test under ThreadSanitizer, in build/tsan
	$(Q)make/deps.sh check
	$(Q)CK_TIMEOUT_MULTIPLIER=6 $(MAKE) --no-print-directory SANITIZE=thread check-all

demo: ## install what is missing, build, train on real data through a crash
	$(Q)make/deps.sh build
	$(Q)$(MAKE) --no-print-directory all
	$(Q)BUILD=$(BUILD) examples/demo.sh

.PHONY: check check-all check-integration check-fault check-golden check-fuzz check-interop asan tsan demo

lint: ## the arrows between the rooms; cppcheck and clang-tidy where they are installed
	$(Q)make/lint_arrows.py
	$(Q)if command -v cppcheck >/dev/null; then cppcheck --quiet --error-exitcode=1 --enable=warning,portability --inline-suppr -I. -Iworker_runtime/include -D_GNU_SOURCE base store rendezvous agent launcher worker_runtime; else echo 'lint: cppcheck is not installed, left out'; fi
	$(Q)if command -v clang-tidy >/dev/null; then clang-tidy --quiet --warnings-as-errors='*' --checks='-*,bugprone-*,-bugprone-easily-swappable-parameters,-bugprone-reserved-identifier,-bugprone-narrowing-conversions,-bugprone-implicit-widening-of-multiplication-result,-bugprone-assignment-in-if-condition,clang-analyzer-*,-clang-analyzer-security.insecureAPI.*' $(filter-out worker_runtime/backends/%,$(wildcard */*.c)) -- $(ours_CPPFLAGS) -std=gnu11 2>/dev/null; else echo 'lint: clang-tidy is not installed, left out'; fi
.PHONY: lint
