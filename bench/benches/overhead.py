"""Overhead: how much of a node's time in the main job is Muster's own, when neither firmware, kernel, disk, package tool nor gate is at work. The job of `make demo`, played once on
virtual machines of which nothing is killed; what is counted is said in lab/src/demo/overhead.rs."""

import json
import os

import machine

OWN_S = 5
NOTES = [
    "The machines' processors are emulated, and every log-in over SSH is counted as Muster's whole: to these machines OpenSSH's own client waits 0.7 to 1.4 s for the server's "
    "first word, 0.4 to 0.9 s for the key exchange and 0.2 to 1.3 s for the authentication (`ssh -vvv`). `begun` and `gates` begin with one log-in each, `log-in` is those "
    "after a restart.",
]


def measure():
    folder, cache = machine.folder(), machine.ROOT / ".cache"
    node = os.environ.get("MUSTER_NODE", str(machine.ROOT / "target/x86_64-unknown-linux-gnu/release/muster-node"))
    machine.run(machine.binary("muster-lab"), "demo", "--muster", machine.binary("muster"), "--muster-node", node, "--stack", cache / "stack/cpu-slurm.toml",
                "--bundle", cache / "stack/blobs", "--dir", folder / "demo", "--port", "0", "--once", cwd=machine.ROOT)
    shares = json.loads((folder / "demo/overhead.json").read_text())
    seconds = lambda ms: f"{ms / 1000:.2f} s"
    rows = [{"what": f"{share['operation']} of {share['node']}",
             "value": "; ".join(f"{name} {seconds(ms)}" for name, ms in share["parts"].items() if ms >= 10) + f"; of {seconds(share['took'])} in all"} for share in shares]
    ratios = [{"what": f"{share['operation']} of {share['node']}, against what it may take", "muster": seconds(share["sum"]), "peer": f"{OWN_S} s",
               "ratio": OWN_S * 1000 / max(share["sum"], 1), "target": 1} for share in shares]
    return rows, ratios
