"""A change of 2,000 nodes of 8 GPUs whose cluster always has a next job: a rollout with the default policy, against two playbooks of Ansible: `serial: [1, 5%]` with
`max_fail_percentage: 5`, and the strategy `host_pinned` with as many forks. At most 5 % of the nodes are out at a time. A change takes 20 minutes, its gates 10, and a job
has a time limit between 15 minutes and 48 hours."""

import json
import os

import machine

NODES = int(os.environ.get("BENCH_NODES", "2000"))
SEEDS = [1, 2, 3]
NOTES = ["All ways are models on the same jobs, in simulated time: the rollout is planned by Muster's planner, minute by minute; the playbooks follow the documented rules of "
         "Ansible, which was not run. With `serial` a batch is changed when the last of its nodes is idle. With `host_pinned` each node goes on by itself and makes room for the "
         "next one; nothing stops a bad revision, since `max_fail_percentage` is not supported there. Both drain the nodes in the order of the inventory, whatever their jobs. A "
         "scheduler knows the time limit of a job, and a job uses 30 to 100 % of it.",
         "Idle GPU-hours count every node without a job until the end of the run; the changes alone take half an hour of each node. A broken node is one whose gates fail. A run "
         "that stops by itself has changed the nodes under `done`."]
WAYS = {"muster": "Muster", "ansible_linear": "Ansible, serial", "ansible_host_pinned": "Ansible, host_pinned"}
FAULTS = {"none": "a good revision", "one_in_ten": "a revision that fails on one node in ten", "all": "a revision that fails on every node"}


def measure():
    found = {}
    for seed in SEEDS:
        told = machine.run(machine.binary("rollout-cost"), NODES, seed, capture_output=True, text=True, timeout=180).stdout
        for line in map(json.loads, told.splitlines()):
            found.setdefault((line["faults"], line["way"]), []).append(line)

    def median(faults, way, what):
        return machine.median([line[what] for line in found[faults, way]])

    rows = [{"what": f"{about}, {name}: hours / idle GPU-hours / done / broken",
             "value": " / ".join([f"{median(faults, way, 'hours'):,.1f}", *(f"{median(faults, way, what):,.0f}" for what in ("idle_gpu_hours", "done", "broken"))])}
            for faults, about in FAULTS.items() for way, name in WAYS.items()]
    ratios = []
    for what, faults, member, unit in [("time until every node is changed", "none", "hours", "h"), ("idle GPU-hours of the change", "none", "idle_gpu_hours", "GPU-h"),
                                       ("nodes broken by a revision that fails on every node", "all", "broken", "nodes")]:
        muster = median(faults, "muster", member)
        for way in ("ansible_linear", "ansible_host_pinned"):
            peer = median(faults, way, member)
            ratios.append({"what": f"{what}, against {WAYS[way]}", "muster": f"{muster:,.1f} {unit}", "peer": f"{peer:,.1f} {unit}", "ratio": peer / muster, "target": 0.98})
    return rows, ratios
