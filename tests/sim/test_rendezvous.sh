#!/bin/sh
# timeout: 300
# Runs 20,000 simulated schedules of the rendezvous. If one fails, its seed is printed.
exec "${BUILD:-build}/tests/sim/sim_rendezvous" --schedules 20000
