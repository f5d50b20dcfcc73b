"""Larger and faster fleets, measured as the one above: what so many more ask of one control plane at once, and where two cores end."""

import fleet

RUNS = [(200, 100), (2000, 20), (1000, 100)]
NOTES = ["At speed 20, 2,000 machines ask as much at once as 40,000 real ones; 1,000 at speed 100 as much as 100,000.",
         "Where a target is missed, both cores are full. What pg_stat_statements shows of 1,000 nodes at speed 100: a life is 20 jobs under ten permits and eleven moves, in 219 "
         "transactions with 71 events; 1,232 statements with those that check constraints inside of others. No statement stands out: to read a job for its agent's report is the "
         "dearest, with 11 of 103 ms of Postgres' CPU a life, then to write events (8 ms), a node's row (8 and 6 ms) and to read it for a turn (7 ms). At 103 ms of Postgres, 30 ms "
         "of the server and 15 ms of the machines two cores have 13 lives a second in them, and 1,000 that are released at once, each to be ready after 6.2 s, are ten times as many.",
         *fleet.NOTES]


def measure():
    return fleet.measure(RUNS)
