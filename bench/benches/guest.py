"""An image from HTTP to a disk, as in `image`, but where it is done on a node: in the live image, booted on a virtual machine, over its network card onto
its disk. The pipeline is of Debian's curl, coreutils and zstd, brought into the same guest."""

import json
import os
import pathlib
import re
import subprocess
import time

import boot
import image
import machine

ROUNDS = 3
GUEST, BOOT_S, ROUND_S = "10.77.0.3", 300, 900
TOOLS = ["bash", "curl", "sha256sum", "zstd", "dd", "tee", "sync", "tail"]
NOTES = ["The guest's two processors are emulated on the host's two, which also serve the image: what a second holds here says nothing of metal. The ratio is "
         "of two ways through the same network card, kernel and disk."]

# The live image's own init is not run: what is measured needs a network, a disk and no agent.
INIT = f"""#!/bin/sh
export PATH=/usr/sbin:/usr/bin:/sbin:/bin
mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t devtmpfs dev /dev; ln -s /proc/self/fd /dev/fd
for module in virtio_pci virtio_net virtio_blk; do modprobe $module; done
for turn in $(seq 100); do [ -e /dev/vda ] && ls /sys/class/net | grep -qv '^lo$' && break; sleep 0.1; done
card=$(ls /sys/class/net | grep -v '^lo$' | head -n 1)
ip addr add {GUEST}/16 dev "$card"; ip link set "$card" up
mkdir -p /bench/dev /bench/proc /bench/tmp; mount -o bind /dev /bench/dev; mount -t proc proc /bench/proc
chroot /bench /usr/bin/bash /rounds || echo "bench: failed"
poweroff -f
"""
# Its lines are read from the console. The first turn of each way warms up.
TURNS = """
cpu() { read -r _ user nice system idle wait irq soft _ </proc/stat; echo $((user + nice + system + irq + soft)); }
turn() {
    sync; before=$(cpu) began=$EPOCHREALTIME
    "$@" || { echo "bench: $1 failed with $?"; tail -c 500 /tmp/said; exit 1; }
    ended=$EPOCHREALTIME
    echo "bench: $1 $(((${ended/./} - ${began/./}) / 1000)) $((($(cpu) - before) * 10))"
}
for ((round = 0; round <= ROUNDS; round++)); do turn muster-node "$@"; turn pipeline "$@"; done
read -r sum _ </tmp/sum
echo "bench: sum $sum"
"""


def root(folder, url, described):
    """What the guest needs beside the live image, as one more archive of its initrd."""
    top = folder / "root"
    tools = [pathlib.Path(subprocess.check_output(["which", name], text=True).strip()).resolve() for name in TOOLS] + [machine.binary("write-image")]
    said = subprocess.check_output(["ldd", *tools], text=True)
    libraries = {pathlib.Path(path) for path in re.findall(r"(/\S+) \(0x", said)}
    for source, target in [*((tool, f"usr/bin/{tool.name}") for tool in tools), *((path, str(path).lstrip("/")) for path in libraries)]:
        place = top / "bench" / target
        place.parent.mkdir(parents=True, exist_ok=True)
        machine.run("cp", "-L", source, place)
    ways = f"muster-node() {{ write-image {url} /dev/vda </plan.json 2>/tmp/said; }}\n" + f"pipeline() {{ {image.PIPELINE}; }}\n"
    (top / "bench/rounds").write_text(f"ROUNDS={ROUNDS}\nset -- {url} /dev/vda /tmp/sum\n" + ways + TURNS)
    (top / "bench/plan.json").write_text(image.plan(described))
    (top / "bench-init").write_text(INIT)
    (top / "bench-init").chmod(0o755)
    archive = folder / "more.cpio"
    with archive.open("wb") as out:
        names = subprocess.run(["find", ".", "-mindepth", "1"], cwd=top, check=True, capture_output=True).stdout
        machine.run("cpio", "-o", "--quiet", "-H", "newc", "-R", "0:0", cwd=top, input=names, stdout=out)
    return archive


def launch(wire, folder, more, disk):
    """A machine on the client's end of the cable; its console."""
    for words in (["link", "add", "br0", "type", "bridge"], ["tuntap", "add", "tap0", "mode", "tap"], ["link", "set", "veth-c", "master", "br0"],
                  ["link", "set", "tap0", "master", "br0", "up"], ["link", "set", "br0", "up"]):
        machine.run("ip", "-n", wire.client, *words)
    live, initrd = machine.ROOT / ".cache" / "live", folder / "initrd"
    if not (live / "vmlinuz").exists():
        raise SystemExit(f"{live} has no live image: images/live/build builds it")
    with initrd.open("wb") as out:
        for part in (live / "initrd.zst", more):
            data = part.read_bytes()
            out.write(data + b"\0" * (-len(data) % 4))
    argv = ["qemu-system-x86_64", "-nodefaults", "-no-user-config", "-display", "none", "-vga", "none", "-machine", "q35,graphics=off",
            "-accel", "tcg,thread=multi,tb-size=256", "-cpu", "max", "-smp", "2", "-m", "3072", "-kernel", live / "vmlinuz", "-initrd", initrd,
            "-append", "console=ttyS0 rdinit=/bench-init quiet panic=-1", "-serial", "stdio", "-no-reboot", "-device", "virtio-rng-pci",
            "-netdev", "tap,id=net0,ifname=tap0,script=no,downscript=no", "-device", "virtio-net-pci,netdev=net0,mac=52:54:00:77:00:03,romfile=",
            "-drive", f"if=none,id=disk0,format=raw,cache=none,file={disk}", "-device", "virtio-blk-pci,drive=disk0"]
    return machine.Process(argv, wire.client, folder / "console.log")


def said(process, console):
    """What the guest measured: milliseconds of time and of its processors, by way; waits for its end."""
    end = time.monotonic() + BOOT_S + 2 * (ROUNDS + 1) * ROUND_S
    while process.child.poll() is None:
        if time.monotonic() > end:
            raise SystemExit("the guest did not end; the last of its console:\n" + console.read_text(errors="replace")[-2000:])
        time.sleep(1)
    text = console.read_text(errors="replace")
    turns = re.findall(r"bench: (muster-node|pipeline) (\d+) (\d+)", text)
    total = re.search(r"bench: sum ([0-9a-f]{64})", text)
    if total is None or len(turns) != 2 * (ROUNDS + 1):
        raise SystemExit("the guest failed; the last of its console:\n" + text[-2000:])
    return [(way, int(took), int(cpu)) for way, took, cpu in turns[2:]], total[1]


def measure():
    wire, folder = machine.Wire(), machine.folder()
    blob, described = image.image(folder)
    _, digest = boot.start(wire, folder, blob=blob)
    disk = folder / "disk"
    with disk.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, described["raw_size"] + (64 << 20))
    url = f"http://{wire.SERVER}:8090/boot/v1/blob/sha256/{digest}"
    turns, total = said(launch(wire, folder, root(folder, url, described), disk), folder / "console.log")
    if total != described["digest"].removeprefix("sha256:"):
        raise SystemExit("the pipeline saw other bytes than the image's")
    medians = {way: [machine.median(column) / 1000 for column in zip(*[turn[1:] for turn in turns if turn[0] == way])] for way in ("muster-node", "pipeline")}
    rows = [{"what": way, "value": f"{took:.1f} s, {described['raw_size'] / took / 1e6:.0f} MB/s unpacked, {cpu:.1f} s of the guest's processors"}
            for way, (took, cpu) in medians.items()]
    (ours, _), (theirs, _) = medians.values()
    size = f"{described['size'] / 1e6:.0f} MB packed, {described['raw_size'] / 1e6:.0f} MB unpacked"
    ratios = [{"what": f"time to write an image ({size}) in a guest, against the pipeline", "muster": f"{ours:.1f} s", "peer": f"{theirs:.1f} s",
               "ratio": theirs / ours, "target": 1.0}]
    return rows, ratios
