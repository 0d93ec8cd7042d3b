# The model of the rendezvous, explored by Spin; README.md has the results.
model: ## explore the model of the rendezvous with Spin; some minutes
	$(Q)command -v spin >/dev/null || { echo 'spin is not installed (Debian: spin)'; exit 1; }
	$(Q)mkdir -p $(BUILD)/model
	$(Q)for d in -DFAULTS=2 -DFAULTS=3; do \
	    echo "$$d:"; (cd $(BUILD)/model && spin $$d -a $(CURDIR)/tests/model/rendezvous.pml && \
	    gcc -O2 -w -DSAFETY -DMEMLIM=6000 -DVECTORSZ=2048 -DCOLLAPSE -o pan pan.c && \
	    ./pan -m300000 | grep -E 'errors|states, stored' && \
	    ! [ -e rendezvous.pml.trail ]) || exit 1; done
	$(Q)echo 'succession:'; cd $(BUILD)/model && \
	    spin -DFAULTS=2 -a $(CURDIR)/tests/model/succession.pml && \
	    gcc -O2 -w -DSAFETY -DMEMLIM=6000 -DVECTORSZ=2048 -DCOLLAPSE -o pan pan.c && \
	    ./pan -m300000 | grep -E 'errors|states, stored' && ! [ -e succession.pml.trail ]
.PHONY: model
