# Fuzz targets: every tests/fuzz/fuzz_NAME.c is one, in libFuzzer's form. Its corpus is
# tests/fuzz/corpus/NAME/, its dictionary tests/fuzz/NAME.dict.
#
#   make fuzz SECONDS_MAX=600 [TARGET=NAME]   libFuzzer (clang), each target for that long; what it
#                                             finds new goes to build/fuzz/NAME, crashes as well
#   make check-fuzz                           the corpora, without libFuzzer
fuzz_names   := $(patsubst tests/fuzz/fuzz_%.c,%,$(wildcard tests/fuzz/fuzz_*.c))
fuzz_replays := $(patsubst %,$(BUILD)/tests/fuzz/replay_%,$(fuzz_names))
fuzz_rooms   := $(all_rooms)
fuzz_driver  := $(call objects,tests/fuzz/replay.c)

$(BUILD)/tests/fuzz/replay_%: $(BUILD)/obj/tests/fuzz/fuzz_%.o $(fuzz_driver) $(fuzz_rooms)
	$(call link,$(program_LIBS))

fuzz: ## libFuzzer on every target, SECONDS_MAX= each (60), TARGET= for one; needs clang
	$(Q)$(MAKE) --no-print-directory BUILD=build/fuzz CC=clang NCCL=no GLOO=no \
	    CFLAGS='$(CFLAGS) -O1 -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=all' \
	    LDFLAGS='$(LDFLAGS) -fsanitize=fuzzer,address,undefined' fuzz-run
fuzz-run: $(patsubst %,fuzz-run-%,$(or $(TARGET),$(fuzz_names)))
$(BUILD)/fuzz_%: $(BUILD)/obj/tests/fuzz/fuzz_%.o $(fuzz_rooms)
	$(call say,LINK,$@)
	$(Q)$(CC) $(ours_LDFLAGS) $(LDFLAGS) -o $@ $^ $(program_LIBS) $(LDLIBS)
fuzz-run-%: $(BUILD)/fuzz_%
	@mkdir -p $(BUILD)/found/$* tests/fuzz/corpus/$*
	$< -max_total_time=$(or $(SECONDS_MAX),60) -timeout=10 -rss_limit_mb=2048 \
	    -print_final_stats=1 -artifact_prefix=$(BUILD)/found/$*- \
	    $(if $(wildcard tests/fuzz/$*.dict),-dict=tests/fuzz/$*.dict) \
	    $(BUILD)/found/$* tests/fuzz/corpus/$*
.PHONY: fuzz fuzz-run
.PRECIOUS: $(BUILD)/fuzz_%
