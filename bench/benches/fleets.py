"""Larger and faster fleets, measured as the one above: what so many more ask of one control plane at once, and where two cores end."""

import fleet

RUNS = [(200, 100), (2000, 20), (1000, 100)]
NOTES = ["At speed 20, 2,000 machines ask as much at once as 40,000 real ones.", *fleet.NOTES]


def measure():
    return fleet.measure(RUNS)
