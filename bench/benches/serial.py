"""A change of 2,000 nodes of 8 GPUs whose cluster always has a next job: a rollout with the default policy, against a playbook of Ansible with `serial` and
`max_fail_percentage: 5`. At most 5 % of the nodes are out at a time. A change takes 20 minutes, its gates 10, and a job has a time limit between 15 minutes and 48 hours."""

import json
import os

import machine

NODES = int(os.environ.get("BENCH_NODES", "2000"))
SEEDS = [1, 2, 3]
NOTES = ["Both ways are models on the same jobs, in simulated time: the rollout is planned by Muster's planner, minute by minute; the playbook follows the documented rules of "
         "Ansible, which was not run. Its strategy `linear` (the default) changes a batch when the last of its nodes is idle; with `free` each node goes on by itself, and the next "
         "batch still waits for the whole batch. A scheduler knows the time limit of a job, and a job uses 30 to 100 % of it.",
         "Idle GPU-hours count every node without a job until the end of the change; the changes alone take half an hour of each node. A broken node is one whose gates fail."]
WAYS = {"muster": "Muster", "ansible_linear": "Ansible, linear", "ansible_free": "Ansible, free"}
FAULTS = {"none": "a good revision", "one_in_ten": "a revision that fails on one node in ten", "all": "a revision that fails on every node"}


def measure():
    found = {}
    for seed in SEEDS:
        told = machine.run(machine.binary("rollout-cost"), NODES, seed, capture_output=True, text=True, timeout=600).stdout
        for line in map(json.loads, told.splitlines()):
            found.setdefault((line["faults"], line["way"]), []).append(line)
    median = lambda faults, way, what: machine.median([line[what] for line in found[faults, way]])
    rows = [{"what": f"{about}, {name}: hours / idle GPU-hours / broken nodes",
             "value": f"{median(faults, way, 'hours'):,.1f} / {median(faults, way, 'idle_gpu_hours'):,.0f} / {median(faults, way, 'broken'):.0f}"}
            for faults, about in FAULTS.items() for way, name in WAYS.items()]
    ratios = []
    for what, faults, member, unit in [("time until every node is changed", "none", "hours", "h"), ("idle GPU-hours of the change", "none", "idle_gpu_hours", "GPU-h"),
                                       ("nodes broken by a revision that fails on every node", "all", "broken", "nodes")]:
        muster = median(faults, "muster", member)
        for way in ("ansible_linear", "ansible_free"):
            peer = median(faults, way, member)
            ratios.append({"what": f"{what}, against {WAYS[way]}", "muster": f"{muster:,.1f} {unit}", "peer": f"{peer:,.1f} {unit}", "ratio": peer / muster, "target": 0.98})
    return rows, ratios
