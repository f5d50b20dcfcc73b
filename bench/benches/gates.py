"""Gates: a hundred verdicts over eight GPUs; looks that need no GPU, by muster-node and by a shell script that runs one check after the other; and the
whole of `smoke` on a node whose tools answer as healthy ones do."""

import os
import pathlib
import re
import subprocess
import time

import machine

HERE = pathlib.Path(__file__).resolve().parent
FIXTURES = machine.ROOT / "node" / "fixtures"
ROUNDS = 21
GPUS = 8
VERDICTS_MS = 10
SMOKE_S = 2
NOTES = [
    "The shell script is our own, built as published scripts are: a function for each check, its tool run and filtered by grep and awk. It measures; it keeps "
    "no evidence and takes no fingerprint of the hardware, which muster-node does in the time given.",
    "There is no GPU here: in `smoke`, nvidia-smi and ibstat are programs that print recorded answers, made into those of eight H100s. What is measured is "
    "muster-node's own time with the start of each tool; what a driver takes to answer comes on top.",
]


def eight_gpus():
    """The recorded document of two GPUs as one of eight, of another model."""
    text = (FIXTURES / "nvidia-smi-590.44.01-2xa5000-v13.xml").read_text()
    start, end = text.index("<gpu "), text.index("</gpu>") + len("</gpu>")
    head, one, tail = text[:start], text[start:end], text[text.rindex("</gpu>") + len("</gpu>"):]
    address = one.split('"')[1]
    gpus = [one.replace(address, f"00000000:{0x10 + gpu:02X}:00.0") for gpu in range(GPUS)]
    return head.replace("<attached_gpus>2<", f"<attached_gpus>{GPUS}<") + "\n\t".join(gpus) + tail


def healthy(text):
    """The same of H100s that are well, as far as `smoke` asks."""
    def leaf(text, parent, name, value):
        pieces = text.split(f"<{parent}>")
        for at in range(1, len(pieces)):
            inner, after = pieces[at].split(f"</{parent}>", 1)
            if f"<{name}>" in inner:
                before, rest = inner.split(f"<{name}>", 1)
                inner = f"{before}<{name}>{value}{rest[rest.index('</'):]}"
            else:
                inner = f"{inner}<{name}>{value}</{name}>"
            pieces[at] = f"{inner}</{parent}>{after}"
        return f"<{parent}>".join(pieces)

    before = text.split("<product_name>")[1].split("<")[0]
    text = text.replace(f"<product_name>{before}<", "<product_name>NVIDIA H100 80GB HBM3<")
    for parent, name, value in (
        ("fb_memory_usage", "total", "81559 MiB"),
        ("ecc_mode", "current_ecc", "Enabled"),
        ("ecc_mode", "pending_ecc", "Enabled"),
        ("fabric", "state", "Completed"),
        ("fabric", "status", "Success"),
    ):
        text = leaf(text, parent, name, value)
    return re.sub("<volatile>.*?</volatile>", lambda counts: counts[0].replace(">N/A<", ">0<"), text, flags=re.S)


def node_with_gpus(folder):
    """A root with programs that answer as the tools of a healthy node, and the rest of this machine. Gates find programs in the folders of the root alone."""
    root = folder / "root"
    tools = root / "usr/local/bin"
    tools.mkdir(parents=True)
    for entry in pathlib.Path("/").iterdir():
        if entry.name != "usr":
            (root / entry.name).symlink_to(entry)
    (tools / "state.xml").write_text(healthy(eight_gpus()))
    one = (FIXTURES / "nvidia-smi-590.48.01-h100-nvlink.txt").read_text().rstrip("\n") + "\n"
    (tools / "nvlink.txt").write_text("".join(one.replace("GPU 0:", f"GPU {gpu}:", 1) for gpu in range(GPUS)))
    port = "CA 'mlx5_{0}'\n\tCA type: MT4129\n\tNumber of ports: 1\n\tFirmware version: 28.39.1002\n\tHardware version: 0\n\tPort 1:\n\t\tState: Active\n\t\tPhysical state: LinkUp\n\t\tRate: 400\n\t\tBase lid: {0}\n\t\tLink layer: InfiniBand\n"
    (tools / "ports.txt").write_text("".join(port.format(rail) for rail in range(GPUS)))
    for name, script in {
        "nvidia-smi": f'if [ "$1" = nvlink ]; then exec cat {tools}/nvlink.txt; fi\nexec cat {tools}/state.xml\n',
        "ibstat": f"exec cat {tools}/ports.txt\n",
    }.items():
        (tools / name).write_text("#!/bin/sh\n" + script)
        (tools / name).chmod(0o755)
    return os.environ | {"MUSTER_ROOT": str(root)}


def seconds(argv, allowed, **options):
    began = time.perf_counter()
    done = subprocess.run([str(word) for word in argv], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)
    took = time.perf_counter() - began
    if done.returncode not in allowed:
        raise SystemExit(f"{argv[0]} ended with {done.returncode}: {done.stdout[-1500:]}{done.stderr[-500:]}")
    return took


def verdicts(folder):
    answer = folder / "eight.xml"
    answer.write_text(eight_gpus())
    told = subprocess.run([machine.binary("judge-gates"), answer, str(ROUNDS)], check=True, capture_output=True, text=True).stdout
    reads, judged = zip(*(map(int, line.split()) for line in told.splitlines()))
    return machine.median(reads) / 1000, machine.median(judged) / 1000


def measure():
    folder, node = machine.folder(), os.environ["MUSTER_NODE"]
    read_ms, judged_ms = verdicts(folder)
    ours = [node, "gate", "--suite", HERE / "smoke-cpu.toml", "--profile", "virtual-node"]
    smoke = [node, "gate", "--suite", "smoke", "--profile", "hgx-h100-80g"]
    env = node_with_gpus(folder)
    by_muster, by_script, of_smoke = [], [], []
    for _ in range(ROUNDS):
        # 1 and 2: a fault that this machine really has, or a log it does not show.
        by_muster.append(seconds(ours, (0, 1, 2)))
        by_script.append(seconds(["bash", HERE / "checks.sh"], range(7)))
        of_smoke.append(seconds(smoke, (0, 1, 2), env=env))
    mine, theirs, whole = machine.median(by_muster), machine.median(by_script), machine.median(of_smoke)
    rows = [
        {"what": "an answer of eight GPUs, read", "value": f"{read_ms:.2f} ms"},
        {"what": "100 gates over eight GPUs, judged", "value": f"{judged_ms:.2f} ms"},
        {"what": "looks without a GPU, by muster-node", "value": f"{mine * 1000:.0f} ms"},
        {"what": "the same by the shell script", "value": f"{theirs * 1000:.0f} ms"},
        {"what": "`smoke`, every tool answering as on a healthy node", "value": f"{whole * 1000:.0f} ms"},
    ]
    ratios = [
        {"what": "100 verdicts over eight GPUs, against what they may take", "muster": f"{judged_ms:.2f} ms", "peer": f"{VERDICTS_MS} ms",
         "ratio": VERDICTS_MS / judged_ms, "target": 1},
        {"what": "looks without a GPU, against the script", "muster": f"{mine * 1000:.0f} ms", "peer": f"{theirs * 1000:.0f} ms", "ratio": theirs / mine, "target": None},
        {"what": "`smoke`, against what it may take", "muster": f"{whole:.2f} s", "peer": f"{SMOKE_S} s", "ratio": SMOKE_S / whole, "target": 1},
    ]
    return rows, ratios
