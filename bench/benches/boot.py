"""Muster's boot services on a wire of their own."""

import json
import subprocess

import machine


def start(wire, folder, loader=None, blob=None):
    """Starts them; the process, and the blob's digest where one was given."""
    subnet = {
        "name": "bench",
        "network": "10.77.0.0/16",
        "agent_address": wire.SERVER,
        "gateway": None,
        "dns": [],
        "mode": "authoritative",
        "dynamic_range": ["10.77.16.0", "10.77.63.255"],
        "reservations": [],
        "relays": [wire.CLIENT],
    }
    site = folder / "site.json"
    site.write_text(json.dumps({"revision": "1", "site": "bench", "subnets": [subnet], "consoles": []}))
    argv = [machine.binary("serve-boot"), site, folder / "agent"]
    argv += ["--loader", loader] if loader else []
    argv += ["--blob", blob] if blob else []
    process = machine.Process(argv, wire.server, folder / "muster.log", stdout=subprocess.PIPE, text=True)
    digest = None
    for line in process.child.stdout:
        if line.strip() == "up":
            return process, digest
        digest = line.strip()
    raise SystemExit("Muster's boot services did not come up: " + (folder / "muster.log").read_text())
