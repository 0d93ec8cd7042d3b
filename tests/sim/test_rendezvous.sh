#!/bin/sh
# timeout: 300
# 20,000 seeded schedules of the rendezvous; a failing one is printed with its seed.
exec "${BUILD:-build}/tests/sim/sim_rendezvous" --schedules 20000
