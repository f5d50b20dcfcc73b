"""Larger and faster fleets, measured as the one above: what so many more ask of one control plane at once, and where two cores end."""

import fleet

RUNS = [(200, 100), (1000, 20), (2000, 10), (2000, 20), (1000, 100)]
NOTES = ["At speed 10, 2,000 machines ask as much at once as 20,000 real ones.", *fleet.NOTES]


def measure():
    return fleet.measure(RUNS)
