# What the interop tests need beside the programs: the stores of C on a pipe.
store_driver := $(BUILD)/tests/interop/store_driver
$(store_driver): $(call objects,tests/interop/store_driver.c) $(call rooms,store base)
	$(call link,$(program_LIBS))

test_programs += $(store_driver)

interop-modern: all $(test_workers) $(store_driver) ## with a current torch; TORCH=2.6.0 or debian
	$(Q)python=$$(TORCH=$(TORCH) tests/interop/modern_venv.sh) && \
	    CRUN_TEST_MODERN_PYTHON=$$python CRUN_TEST_TORCH_PYTHON=$$python $(runner) --jobs 1 interop
.PHONY: interop-modern

# nemo-run does not work with newer releases of leptonai. axolotl and ms-swift pin releases of torch
# and transformers, so they come without their dependencies, but for what their launchers import.
frameworks := accelerate transformers lightning cloudpickle torchx nemo-run leptonai==0.26.6
launchers  := ms-swift axolotl modelscope modelscope-hub colorama datasets dill xxhash \
              multiprocess pyarrow pandas python-dateutil pytz attrdict json-repair addict peft \
              python-dotenv posthog backoff distro immutabledict art
interop-frameworks: wheel ## every way into torchelastic, with the packages of PyPI
	$(Q)python=$$(TORCH=$(TORCH) tests/interop/modern_venv.sh) && \
	    $$python -m pip install --quiet --disable-pip-version-check $(frameworks) && \
	    $$python -m pip install --quiet --disable-pip-version-check --no-deps $(launchers) && \
	    $$python -m pip install --quiet --disable-pip-version-check --no-index --no-deps \
	        --force-reinstall $(PACKAGE_OUT)/*.whl && \
	    CRUN_TEST_FRAMEWORKS_PYTHON=$$python $(runner) --jobs 1 interop --filter frameworks
.PHONY: interop-frameworks

jax_venv := $(BUILD)/interop/venv-jax
interop-jax: all ## crun --jax and --tf-config with jax and tensorflow-cpu of PyPI
	$(Q)test -x $(jax_venv)/bin/python || python3 -m venv $(jax_venv)
	$(Q)$(jax_venv)/bin/python -m pip install --quiet --disable-pip-version-check jax tensorflow-cpu
	$(Q)CRUN_TEST_JAX_PYTHON=$(abspath $(jax_venv))/bin/python $(runner) --jobs 1 interop \
	    --filter jax_tensorflow
.PHONY: interop-jax

interop-recovery: all ## ranks and nodes killed under stock torch, KILLS=3; survivors go on
	$(Q)python=$$(TORCH=$(TORCH) tests/interop/modern_venv.sh) && \
	    CRUN_TEST_MODERN_PYTHON=$$python CK_TIMEOUT_MULTIPLIER=$(if $(KILLS),40,2) \
	    $(if $(MINUTES),MINUTES=$(MINUTES)) KILLS=$(or $(KILLS),3) \
	    $(runner) --jobs 1 interop --filter recovery
.PHONY: interop-recovery

interop-torchft: all ## the real torchft, one replica on each of two hosts; needs root
	$(Q)python=$$(TORCH=$(TORCH) tests/interop/modern_venv.sh torchft-nightly) && \
	    CRUN_TEST_MODERN_PYTHON=$$python $(runner) --jobs 1 interop --filter torchft
.PHONY: interop-torchft

interop-languages: all ## the tutorial programs in Rust, Go and Python; installs the compilers
	$(Q)make/deps.sh languages
	$(Q)$(runner) --jobs 1 interop --filter language
.PHONY: interop-languages

grpc_venv := $(BUILD)/interop/venv-grpc
interop-grpc: all ## --health-service with a gRPC server of PyPI's grpcio
	$(Q)test -x $(grpc_venv)/bin/python || python3 -m venv $(grpc_venv)
	$(Q)$(grpc_venv)/bin/python -m pip install --quiet --disable-pip-version-check grpcio
	$(Q)CRUN_TEST_GRPC_PYTHON=$(abspath $(grpc_venv))/bin/python $(runner) --jobs 1 interop \
	    --filter node_health_service
.PHONY: interop-grpc
