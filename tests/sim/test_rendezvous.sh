#!/bin/sh
# timeout: 300
# Runs 20,000 simulated schedules of the rendezvous. Before them, runs the schedules that have found
# an error once; most of these have larger seeds. If one fails, its seed is printed.
sim="${BUILD:-build}/tests/sim/sim_rendezvous"
for seed in 19483 21941 31807 46591 51789 59639 141406 155571 170835 189253 190966 192687 \
    216873 222510 227735 229509 232669 298858 303791 772 \
    202239 808675 850595 1912 2280 15185 23889 61778 111239 1032991 159010 51339 840552 \
    10056208 10231296 10399513 10201285 \
    11356231 13031259 11723005 14226286 12219658 11247924 13958822 12534635 12839911 \
    12471062 13456472 20012197 20342896; do
    "$sim" --seed "$seed" || exit 1
done
exec "$sim" --schedules 20000
