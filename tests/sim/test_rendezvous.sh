#!/bin/sh
# timeout: 300
# Runs 20,000 simulated schedules of the rendezvous, and schedules with larger seeds that have found
# an error once. If one fails, its seed is printed.
sim="${BUILD:-build}/tests/sim/sim_rendezvous"
for seed in 21941 31807 59639; do
    "$sim" --seed "$seed" || exit 1
done
exec "$sim" --schedules 20000
