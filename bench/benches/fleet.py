"""A fleet from declaration to service and back: how long a node takes to be available, to serve, and to be available again, against the sum of what its
machine takes, which is drawn from distributions. A ratio of 1 is no queueing at all and no time of Muster's own. Every node is there at once: declared,
claimed and released as fast as the API takes it."""

import json
import os
import subprocess

import machine

# Nodes, and how many times faster than real machines theirs are: what so many more would ask of this control plane at once.
RUNS = [(200, 50)]
FULL = [(200, 100), (1000, 20), (2000, 10), (2000, 20)]
TARGET = 1.2
NOTES = ["`BENCH_FULL=1` adds larger fleets, for half an hour. At speed 10, 2,000 machines ask as much at once as 20,000 real ones. What is above 1 is the two cores, which Postgres, server, agent and machines share."]


def run(nodes, speed, until="released"):
    folder = machine.folder() / "fleet"
    argv = [machine.binary("muster-lab"), "fleet", "--nodes", nodes, "--speed", speed, "--seed", 7, "--until", until, "--json", "--timeout-s", 1500,
            "--dir", folder, "--muster", machine.binary("muster")]
    done = subprocess.run([str(word) for word in argv], capture_output=True, text=True, timeout=1600)
    if done.returncode:
        raise SystemExit(f"{nodes} nodes at speed {speed}: {done.stderr[-2000:]}")
    return json.loads(done.stdout)


def measure():
    rows, ratios = [], []
    for nodes, speed in RUNS + (FULL if os.environ.get("BENCH_FULL") else []):
        report = run(nodes, speed)
        phases = ", ".join(f"{phase} {told['ratio']:.2f} (p99 {told['p99']:.2f})" for phase, told in report["phases"].items())
        rows.append({"what": f"{nodes:,} nodes at speed {speed}", "value": f"{report['nodes_per_s']:.1f} whole lives/s; {phases}"})
        actual = sum(told["actual_s"] for told in report["phases"].values())
        ideal = sum(told["ideal_s"] for told in report["phases"].values())
        ratios.append({"what": f"a life of {nodes:,} nodes at speed {speed}: its machine's share of the time", "muster": f"{actual / nodes:.1f} s", "peer": f"{ideal / nodes:.1f} s",
                       "ratio": ideal / actual, "target": round(1 / TARGET, 2)})
    return rows, ratios
