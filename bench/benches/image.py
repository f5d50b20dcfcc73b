"""An image from HTTP to a disk: fetched, verified, unpacked, written, durable. Against the pipeline an engineer would type, of the same blob from the same
server onto the same file. The pipeline checks the compressed digest alone; muster-node also checks that of the unpacked image."""

import hashlib
import json
import os
import pathlib
import subprocess
import time
import uuid

import boot
import machine

ROUNDS = 5
PIPELINE = 'set -o pipefail; curl -sf "$1" | tee >(sha256sum >"$3") | zstd -dq | dd of="$2" bs=1M iflag=fullblock conv=fsync,notrunc status=none'


def image(folder):
    """The reference image where it was built; else one like it, of this machine's own libraries: a description and the blob."""
    cached = pathlib.Path(os.environ.get("BENCH_IMAGE", machine.ROOT / ".cache" / "debian-12"))
    if (cached / "manifest.json").exists():
        manifest = json.loads((cached / "manifest.json").read_text())
        blob = cached / "image.raw.zst"
        return blob, {key: manifest[key] for key in ("digest", "size", "raw_digest", "raw_size")} | {"esp_partition": manifest.get("esp_partition", 2)}
    raw, root, blob = folder / "raw", folder / "root", folder / "image.zst"
    with raw.open("wb") as file:
        file.truncate(1280 << 20)
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    machine.run("/usr/sbin/sgdisk", "-n", "1:2048:4095", "-t", "1:ef02", "-n", "2:4096:135167", "-t", "2:ef00", "-n", "3:135168:0", raw, **quiet)
    source = pathlib.Path("/usr/lib/x86_64-linux-gnu")
    machine.run("/usr/sbin/mke2fs", "-q", "-t", "ext4", "-d", source, root, "1200m", **quiet)
    machine.run("dd", f"if={root}", f"of={raw}", "bs=1M", "seek=66", "conv=notrunc,sparse", "status=none")
    machine.run("zstd", "-q", "-T2", "-9", raw, "-o", blob)

    def digest(path):
        with path.open("rb") as file:
            return "sha256:" + hashlib.file_digest(file, "sha256").hexdigest()

    return blob, {"digest": digest(blob), "size": blob.stat().st_size, "raw_digest": digest(raw), "raw_size": raw.stat().st_size, "esp_partition": 2}


def plan(described):
    """The rest of a `WriteImage`, which moves no bytes."""
    nobody = str(uuid.UUID(int=1))
    network = {"mac": "52:54:00:00:00:01", "address": "10.77.0.11/24", "gateway": None, "dns": [], "hosts": []}
    rest = {"permit": nobody, "operation": nobody, "claim": nobody, "disk_serial": "bench", "root_partition": 3, "hostname": "bench", "url": "",
            "network": network, "user_ca": "ssh-ed25519 AAAA", "principal": "muster:bench:1"}
    return json.dumps(described | rest)


def measure():
    wire, folder = machine.Wire(), machine.folder()
    blob, described = image(folder)
    server, digest = boot.start(wire, folder, blob=blob)
    url = f"http://{wire.SERVER}:8090/boot/v1/blob/sha256/{digest}"
    disk = folder / "disk"
    with disk.open("wb") as file:  # a disk that was used before: all of it is allocated, and nothing of it zero
        for _ in range((described["raw_size"] >> 20) + 64):
            file.write(b"\xee" * (1 << 20))
        os.fsync(file.fileno())
    ways = {
        "muster-node": lambda: wire.on_client(machine.binary("write-image"), url, disk, input=plan(described).encode(), check=True, capture_output=True, timeout=600),
        "pipeline": lambda: wire.on_client("bash", "-c", PIPELINE, "-", url, disk, folder / "sum", check=True, timeout=600),
    }
    seen = {}
    for round in range(ROUNDS + 1):
        for name, write in ways.items():
            os.sync()
            times, began = os.times(), time.monotonic()
            write()
            took, cpu = time.monotonic() - began, sum(os.times()[2:4]) - sum(times[2:4])
            if round > 0:
                seen.setdefault(name, []).append((took, cpu))
    if (folder / "sum").read_text().split()[0] != described["digest"].removeprefix("sha256:"):
        raise SystemExit("the pipeline saw other bytes than the image's")
    rows = []
    for name, values in seen.items():
        took, cpu = (machine.median(column) for column in zip(*values))
        rows.append({"what": name, "value": f"{took:.2f} s, {described['raw_size'] / took / 1e6:.0f} MB/s unpacked, {cpu:.2f} s of CPU"})
    ours, theirs = (machine.median([took for took, _ in seen[name]]) for name in ("muster-node", "pipeline"))
    size = f"{described['size'] / 1e6:.0f} MB packed, {described['raw_size'] / 1e6:.0f} MB unpacked"
    ratios = [{"what": f"time to write an image ({size}), against the pipeline", "muster": f"{ours:.2f} s", "peer": f"{theirs:.2f} s",
               "ratio": theirs / ours, "target": 1.0}]
    return rows, ratios
