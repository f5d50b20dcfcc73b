"""TFTP: a file of 32 MiB in blocks of 1468 bytes, one at a time and eight at once, against tftpd-hpa and dnsmasq; and in windows, where a client asks."""

import os
import time

import boot
import machine

SIZE = 32 << 20
ROUNDS = 5


def measure():
    wire, folder = machine.Wire(), machine.folder()
    root = folder / "tftp"
    root.mkdir()
    root.chmod(0o755)
    file = root / "loader"
    file.write_bytes(os.urandom(SIZE))
    file.chmod(0o644)
    wanted = file.read_bytes()

    def hpa():
        argv = ["in.tftpd", "-L", "-a", f"{wire.SERVER}:69", "-u", "root", "-s", root]
        return machine.Process(argv, wire.server, folder / "hpa.log")

    def dnsmasq():
        argv = ["dnsmasq", "--no-daemon", "--conf-file=/dev/null", "--port=0", "--interface=veth-s", "--bind-interfaces", "--user=root"]
        return machine.Process(argv + ["--enable-tftp", f"--tftp-root={root}"], wire.server, folder / "dnsmasq.log")

    servers = {"Muster": lambda: boot.start(wire, folder, loader=file)[0], "tftpd-hpa": hpa, "dnsmasq": dnsmasq}
    seen = {}
    for _ in range(ROUNDS):
        for name, start in servers.items():
            server = start()
            wire.listens(server, "u", 69)
            for clients in (1, 8):
                cpu, began = server.cpu_s(), time.monotonic()
                script = f'for i in $(seq {clients}); do curl -sf --interface 10.77.1.$i --tftp-blksize 1468 -o "$1.$i" "$2" & all="$all $!"; done; for c in $all; do wait $c || exit 1; done'
                wire.on_client("sh", "-c", script, "-", folder / "got", f"tftp://{wire.SERVER}/loader", check=True, timeout=300)
                seen.setdefault((name, clients), []).append((time.monotonic() - began, server.cpu_s() - cpu))
                for client in range(clients):
                    got = folder / f"got.{client + 1}"
                    if got.read_bytes() != wanted:
                        raise SystemExit(f"{name} served other bytes than it has")
            if name == "Muster":
                began = time.monotonic()
                argv = ["atftp", "--option", "blksize 1468", "--option", "windowsize 16", "--get", "-r", "loader", "-l", folder / "windowed"]
                wire.on_client(*argv, wire.SERVER, check=True, timeout=300, capture_output=True)
                seen.setdefault((name, "window"), []).append((time.monotonic() - began, 0))
                if (folder / "windowed").read_bytes() != wanted:
                    raise SystemExit("a windowed transfer brought other bytes")
            server.stop()
    rows, ratios = [], []
    speed = {}
    for (name, clients), values in seen.items():
        seconds, cpu = (machine.median(column) for column in zip(*values))
        count = 1 if clients == "window" else clients
        speed[name, clients] = count * SIZE / seconds / 1e6
        how = "in windows of 16 blocks" if clients == "window" else f"{clients} at once"
        # tftpd-hpa's children, one for each transfer, are counted by nobody.
        used = "" if clients == "window" or name == "tftpd-hpa" else f", {cpu / count:.2f} s of CPU each"
        rows.append({"what": f"{name}, {how}", "value": f"{speed[name, clients]:.1f} MB/s{used}"})
    for clients in (1, 8):
        for peer in ("tftpd-hpa", "dnsmasq"):
            ours, theirs = speed["Muster", clients], speed[peer, clients]
            ratios.append({"what": f"MB/s to {clients}, against {peer}", "muster": f"{ours:.1f} MB/s", "peer": f"{theirs:.1f} MB/s",
                           "ratio": ours / theirs, "target": 1.0})
    return rows, ratios
