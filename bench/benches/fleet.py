"""A fleet from declaration to service and back: how long a node takes to be available, to serve, and to be available again, against the sum of what its
machine takes, which is drawn from distributions. A ratio of 1 is no queueing at all and no time of Muster's own. Every node is there at once: declared,
claimed and released as fast as the API takes it."""

import json
import os
import pathlib
import subprocess
import time

import machine

# Nodes, and how many times faster than real machines theirs are: what so many more would ask of this control plane at once.
RUNS = [(200, 50)]
TARGET = 1.2
NOTES = ["What is above 1 is the two cores, which Postgres, server, agent and machines share."]


def run(nodes, speed, until="released"):
    """A fleet's report, and what share of the machine each of its programs had."""
    folder = machine.folder() / "fleet"
    argv = [machine.binary("muster-lab"), "fleet", "--nodes", nodes, "--speed", speed, "--seed", 7, "--until", until, "--json", "--timeout-s", 1500,
            "--dir", folder, "--muster", machine.binary("muster")]
    began = time.monotonic()
    child = subprocess.Popen([str(word) for word in argv], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    machine.later(lambda: child.poll() is None and child.terminate())
    seen = {}
    while True:
        try:
            out, complaints = child.communicate(timeout=2)
            break
        except subprocess.TimeoutExpired:
            seen |= programs(child.pid, str(folder))
            if time.monotonic() - began > 1600:
                child.terminate()
    if child.returncode:
        raise SystemExit(f"{nodes} nodes at speed {speed}: {complaints[-2000:]}")
    return json.loads(out), shares(seen.values(), time.monotonic() - began)


def programs(root, folder):
    """What runs below a process or was started for a folder, with the CPU seconds of each: by pid."""
    found = {}
    for entry in pathlib.Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                name, fields = (entry / "stat").read_text().split("(", 1)[1].rsplit(")", 1)
                line = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")
            except OSError:
                continue
            fields = fields.split()
            found[int(entry.name)] = (int(fields[1]), name, line, sum(int(value) for value in fields[11:13]) / machine.TICKS)

    def ours(pid):
        while pid in found:
            parent, _, line, _ = found[pid]
            if pid == root or any(folder in word for word in line):
                return True
            pid = parent
        return False

    return {pid: (role(name, line), cpu) for pid, (_, name, line, cpu) in found.items() if ours(pid)}


def role(name, line):
    if name == "muster":
        return next((word for word in line[1:] if word in ("server", "agent")), name)
    return {"muster-lab": "machines", "postgres": "Postgres"}.get(name, "others")


def shares(seen, wall):
    """`Postgres 48 %, server 20 %` of all cores; what is missing to 100 was idle, or somebody else's."""
    total = {}
    for name, cpu in seen:
        total[name] = total.get(name, 0) + cpu
    return ", ".join(f"{name} {100 * cpu / wall / os.cpu_count():.0f} %" for name, cpu in sorted(total.items(), key=lambda pair: -pair[1]) if cpu > 1)


def measure(runs=RUNS):
    rows, ratios = [], []
    for nodes, speed in runs:
        report, used = run(nodes, speed)
        phases = ", ".join(f"{phase} {told['ratio']:.2f} (p99 {told['p99']:.2f})" for phase, told in report["phases"].items())
        rows.append({"what": f"{nodes:,} nodes at speed {speed}", "value": f"{report['nodes_per_s']:.1f} whole lives/s; {phases}; of the cores {used}"})
        # Each phase by itself: a long one that is quick does not hide a short one that is slow.
        for phase, told in report["phases"].items():
            ratios.append({"what": f"{phase}, {nodes:,} nodes at speed {speed}: its machine's share of the time", "muster": f"{told['actual_s'] / nodes:.1f} s",
                           "peer": f"{told['ideal_s'] / nodes:.1f} s", "ratio": told["ideal_s"] / told["actual_s"], "target": round(1 / TARGET, 2)})
    return rows, ratios
