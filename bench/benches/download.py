"""HTTP: an image of 512 MiB from the page cache, to one node and to sixteen at once, against nginx with sendfile."""

import os
import time

import boot
import machine

SIZE = 512 << 20
ROUNDS = 5
NOTES = [
    "To one reader, sendfile fills the connection in 0.1 ms and then waits 0.7 to 0.9 ms for every 1.5 MB until the reader has made room (strace); Muster's "
    "runtime wakes a second thread each time, which on two cores takes from the reader, where nginx has one thread."
]


def nginx(wire, folder):
    config = f"""daemon off; user root; worker_processes auto; pid {folder}/nginx.pid; error_log {folder}/nginx.log;
events {{ worker_connections 4096; }}
http {{ access_log off; sendfile on; tcp_nopush on; server {{ listen {wire.SERVER}:8091; root {folder}/www; }} }}"""
    (folder / "nginx.conf").write_text(config)
    return machine.Process(["nginx", "-c", folder / "nginx.conf"], wire.server, folder / "nginx.err")


def fetch(wire, server, url, clients):
    """Seconds and server CPU seconds until every client has all of it."""
    cpu, start = server.cpu_s(), time.monotonic()
    script = f'for i in $(seq {clients}); do curl -sf --interface 10.77.1.$i -o /dev/null "$1" & all="$all $!"; done; for c in $all; do wait $c || exit 1; done'
    wire.on_client("sh", "-c", script, "-", url, check=True, timeout=300)
    return time.monotonic() - start, server.cpu_s() - cpu


def measure():
    wire, folder = machine.Wire(), machine.folder()
    (folder / "www").mkdir()
    image = folder / "www" / "image"
    with image.open("wb") as file:
        for _ in range(SIZE >> 20):
            file.write(os.urandom(1 << 20))
    muster, digest = boot.start(wire, folder, blob=image)
    peer = nginx(wire, folder)
    wire.listens(peer, "t", 8091)
    urls = {
        "Muster": (muster, f"http://{wire.SERVER}:8090/boot/v1/blob/sha256/{digest}"),
        "nginx": (peer, f"http://{wire.SERVER}:8091/image"),
    }
    seen = {}
    for round in range(ROUNDS + 1):
        for clients in (1, 16):
            for name, (server, url) in urls.items():
                took = fetch(wire, server, url, clients)
                if round > 0:  # the first one fills the page cache
                    seen.setdefault((clients, name), []).append(took)
    rows, ratios = [], []
    for (clients, name), values in seen.items():
        seconds, cpu = (machine.median(column) for column in zip(*values))
        gib = clients * SIZE / (1 << 30)
        rows.append({"what": f"{name}, {clients} at once", "value": f"{gib / seconds:.2f} GiB/s, {cpu / gib:.2f} s of CPU per GiB"})
    for clients in (1, 16):
        ours, theirs = (machine.median([took for took, _ in seen[clients, name]]) for name in ("Muster", "nginx"))
        gib = clients * SIZE / (1 << 30)
        ratios.append({"what": f"GiB/s to {clients}, against nginx", "muster": f"{gib / ours:.2f} GiB/s", "peer": f"{gib / theirs:.2f} GiB/s",
                       "ratio": theirs / ours, "target": 0.9})
    return rows, ratios
