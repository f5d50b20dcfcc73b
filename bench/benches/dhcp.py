"""DHCP: how many machines are given an address per second. perfdhcp asks as a relay, so that no server broadcasts; 10,000 machines, one pool."""

import json
import re

import boot
import machine

SECONDS = 4
ROUNDS = 3


def kea(wire, folder, persist):
    config = {
        "Dhcp4": {
            "interfaces-config": {"interfaces": ["veth-s"], "dhcp-socket-type": "udp"},
            "lease-database": {"type": "memfile", "persist": persist, "name": str(folder / "leases.csv")},
            "valid-lifetime": 600,
            "subnet4": [{"subnet": "10.77.0.0/16", "pools": [{"pool": "10.77.16.0 - 10.77.63.255"}]}],
            "loggers": [{"name": "kea-dhcp4", "severity": "ERROR", "output_options": [{"output": "stderr"}]}],
        }
    }
    path = folder / "kea.json"
    path.write_text(json.dumps(config))
    env = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "KEA_PIDFILE_DIR": str(folder), "KEA_LOCKFILE_DIR": str(folder)}
    return machine.Process(["kea-dhcp4", "-c", path], wire.server, folder / "kea.log", env=env)


def dnsmasq(wire, folder):
    argv = ["dnsmasq", "--no-daemon", "--conf-file=/dev/null", "--port=0", "--interface=veth-s", "--bind-interfaces", "--user=root", "--no-ping"]
    argv += ["--dhcp-range=10.77.16.0,10.77.63.255,255.255.0.0,10m", "--dhcp-lease-max=20000", f"--dhcp-leasefile={folder}/dnsmasq.leases"]
    return machine.Process(argv + ["--log-facility=" + str(folder / "dnsmasq.log")], wire.server, folder / "dnsmasq.err")


def burst(wire, server, rate):
    """Acknowledged addresses per second of sending, and the server's CPU for each, in microseconds."""
    before = server.cpu_s()
    argv = ["perfdhcp", "-4", "-r", rate, "-p", SECONDS, "-R", 10_000, "-W", "500000", "-l", wire.CLIENT, wire.SERVER]
    done = wire.on_client(*argv, capture_output=True, text=True, timeout=60)
    received = re.findall(r"received packets: (\d+)", done.stdout)
    if len(received) < 2:
        raise SystemExit(f"perfdhcp said: {done.stdout}{done.stderr}")
    acks = int(received[1])
    return acks / SECONDS, (server.cpu_s() - before) / max(acks, 1) * 1e6


def measure():
    wire, folder = machine.Wire(), machine.folder()
    servers = {
        "Muster": (lambda: boot.start(wire, folder)[0], (6_000, 14_000, 30_000)),
        "Kea": (lambda: kea(wire, folder, True), (6_000, 14_000, 30_000)),
        "Kea, leases in memory": (lambda: kea(wire, folder, False), (6_000, 14_000, 30_000)),
        "dnsmasq": (lambda: dnsmasq(wire, folder), (1_000,)),
    }
    seen = {}
    for _ in range(ROUNDS):
        for name, (start, rates) in servers.items():
            server = start()
            wire.listens(server, "u", 67)
            burst(wire, server, 500)  # the first leases are nobody's measure
            for rate in rates:
                seen.setdefault((name, rate), []).append(burst(wire, server, rate))
            server.stop()
    rows = []
    middle = {key: [machine.median(column) for column in zip(*values)] for key, values in seen.items()}
    best = {name: max(middle[name, rate][0] for rate in rates) for name, (_, rates) in servers.items()}
    for (name, rate), (acks, cpu) in middle.items():
        rows.append({"what": f"{rate:,}/s offered to {name}", "value": f"{acks:,.0f} ACK/s, {cpu:.0f} µs of CPU each"})
    ratios = [
        ratio("most ACK/s, against Kea", best["Muster"], best["Kea"], 1.0),
        ratio("most ACK/s, against Kea with leases in memory", best["Muster"], best["Kea, leases in memory"], None),
        ratio("most ACK/s, against dnsmasq", best["Muster"], best["dnsmasq"], 1.0),
    ]
    return rows, ratios


def ratio(what, ours, theirs, target):
    return {"what": what, "muster": f"{ours:,.0f}/s", "peer": f"{theirs:,.0f}/s", "ratio": ours / theirs, "target": target}
