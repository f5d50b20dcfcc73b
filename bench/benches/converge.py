"""Converge: 50 items (30 files, 5 unit files, 10 network sysctls, 5 packages) on 40 hosts over real SSH, with all but the packages to change, and with nothing
to change. The floor is one bare exec per host, of `true`: what logging in alone costs. muster-node is on the hosts already, as Python is for Ansible; its
plan has items more of its own."""

import base64
import json
import os
import time
import uuid

import hosts as farm
import machine

HOSTS = int(os.environ.get("BENCH_HOSTS", 40))
# Ansible takes minutes of two cores: it is given some of the hosts, and its time is told per host. BENCH_FULL=1 gives it all.
SLOW_HOSTS = HOSTS if os.environ.get("BENCH_FULL") else min(HOSTS, 4)
ROUNDS = 3
NOTES = [f"Ansible and Mitogen ran once, on {SLOW_HOSTS} of the {HOSTS} hosts, which fill the cores; their times are scaled to {HOSTS}. `BENCH_FULL=1` runs them on all."] if SLOW_HOSTS < HOSTS else []

FILES = {f"/etc/bench.d/{n:02}.conf": "".join(f"setting_{line} = {n * line}\n" for line in range(12)) for n in range(30)}
UNITS = {f"/etc/systemd/system/bench-{n}.service": f"[Unit]\nDescription=Bench {n}\n[Service]\nExecStart=/bin/true\n" for n in range(5)}
SYSCTL = {
    "net.ipv4.ip_forward": ("0", "1"),
    "net.ipv4.conf.all.rp_filter": ("0", "2"),
    "net.ipv4.conf.all.accept_redirects": ("1", "0"),
    "net.ipv4.conf.all.send_redirects": ("1", "0"),
    "net.ipv4.tcp_keepalive_time": ("7200", "600"),
    "net.ipv4.tcp_keepalive_intvl": ("75", "30"),
    "net.ipv4.tcp_keepalive_probes": ("9", "5"),
    "net.ipv4.tcp_fin_timeout": ("60", "30"),
    "net.ipv4.tcp_syn_retries": ("6", "4"),
    "net.ipv4.tcp_orphan_retries": ("0", "2"),
}
PACKAGES = ["bash", "coreutils", "dpkg", "gzip", "tar"]
RESET = "rm -rf /etc/bench.d /etc/systemd/system/bench-*.service /etc/sysctl.d/90-muster.conf; " + "; ".join(
    f"echo {before} >/proc/sys/{key.replace('.', '/')}" for key, (before, _) in SYSCTL.items()
)


def versions():
    show = machine.subprocess.run(["dpkg-query", "-W", "-f", "${Package} ${Version} ${Architecture}\\n", *PACKAGES], capture_output=True, text=True, check=True)
    return [line.split() for line in show.stdout.splitlines()]


def muster(farm, folder):
    keys = farm.keys
    key = {"private_key": (keys / "user").read_text(), "certificate": (keys / "user-cert.pub").read_text().strip()}
    host_key = " ".join((keys / "host.pub").read_text().split()[:2])
    logins = [{"address": address, "port": 22, "host_key": host_key, "user_key": key} for address in farm.addresses]
    nobody, nothing = str(uuid.UUID(int=1)), "sha256:" + "0" * 64
    files = [{"path": path, "mode": "0644", "owner": "root", "group": "root", "content": base64.b64encode(text.encode()).decode(), "secret": False}
             for path, text in (FILES | UNITS).items()]
    packages = [{"name": name, "version": version, "arch": arch, "size": 1, "sha256": nothing, "filename": f"{name}.deb"} for name, version, arch in versions()]
    plan = {"lock": nothing, "repository": "http://10.78.0.1:8090/boot/v1/bundle/00", "packages": packages, "absent": [], "files": files,
            "sysctl": {key: after for key, (_, after) in SYSCTL.items()}, "modules_load": [], "modules_blacklist": [], "kernel_args": [], "limits": [],
            "services": [], "principal": "muster:bench:1", "user_ca": "ssh-ed25519 AAAA",
            "marker": {"protocol": 1, "node": nobody, "claim": nobody, "epoch": 1, "image": nothing}}
    order = json.dumps({"logins": logins, "plan": plan})
    node = os.environ["MUSTER_NODE"]
    return lambda: farm.control_run([machine.binary("converge-all"), node], input=order, timeout=300)


def script():
    """What a shell does for the same, in one round trip."""
    lines = ["changed=0"]
    for path, text in (FILES | UNITS).items():
        lines.append(f"wanted='{text}'; [ \"$(cat {path} 2>/dev/null)\" = \"$(printf %s \"$wanted\")\" ] || {{ mkdir -p {os.path.dirname(path)}; printf %s \"$wanted\" >{path}.new; chmod 644 {path}.new; mv {path}.new {path}; changed=$((changed+1)); }}")
    for key, (_, after) in SYSCTL.items():
        lines.append(f"[ \"$(cat /proc/sys/{key.replace('.', '/')})\" = {after} ] || {{ echo {after} >/proc/sys/{key.replace('.', '/')}; changed=$((changed+1)); }}")
    for name, version, _ in versions():
        lines.append(f"[ \"$(dpkg-query -W -f '${{Version}}' {name})\" = '{version}' ] || exit 1")
    return "\n".join(lines + ["echo changed $changed"])


BARE = """
import asyncio, asyncssh, sys
script, key, addresses = open(sys.argv[1]).read(), sys.argv[2], sys.argv[3:]
async def one(address):
    async with asyncssh.connect(address, username="root", client_keys=[key], known_hosts=None, config=None) as connection:
        return (await connection.run("sh", input=script, check=True)).stdout
async def main():
    said = await asyncio.gather(*map(one, addresses))
    print(set(said))
asyncio.run(main())
"""


def bare(farm, folder, name, text):
    (folder / "bare.py").write_text(BARE)
    (folder / name).write_text(text)
    python = machine.CACHE / "venv" / "bin" / "python"
    return lambda: farm.control_run([python, folder / "bare.py", folder / name, farm.keys / "user", *farm.addresses], timeout=300)


PYINFRA = """
import io
from pyinfra.operations import apt, files, server
for path, text in {files!r}.items():
    files.put(name=path, src=io.StringIO(text), dest=path, mode="644")
for key, value in {sysctl!r}.items():
    server.sysctl(name=key, key=key, value=value)
apt.packages(name="packages", packages={packages!r})
"""


def pyinfra(farm, folder):
    (folder / "deploy.py").write_text(PYINFRA.format(files=FILES | UNITS, sysctl={key: int(after) for key, (_, after) in SYSCTL.items()}, packages=PACKAGES))
    data = {"ssh_user": "root", "ssh_key": str(farm.keys / "user"), "ssh_strict_host_key_checking": "off", "ssh_known_hosts_file": "/dev/null"}
    (folder / "inventory.py").write_text(f"hosts = ({farm.addresses!r}, {data!r})\n")
    argv = [machine.CACHE / "venv" / "bin" / "pyinfra", "--parallel", HOSTS, "-y", folder / "inventory.py", folder / "deploy.py"]
    return lambda: farm.control_run(argv, timeout=600, cwd=folder, env={"HOME": str(folder)})


def ansible(farm, folder, with_mitogen):
    home = folder / ("mitogen" if with_mitogen else "ansible")
    home.mkdir()
    venv = machine.CACHE / "venv"
    config = ["[defaults]", "forks = 40", "host_key_checking = False", "gathering = explicit", "interpreter_python = /usr/bin/python3", f"private_key_file = {farm.keys}/user",
              "remote_user = root", "strategy = " + ("mitogen_free" if with_mitogen else "free"), "stdout_callback = minimal", f"local_tmp = {home}/tmp"]
    if with_mitogen:
        plugins = next(venv.glob("lib/python*/site-packages/ansible_mitogen/plugins/strategy"))
        config.append(f"strategy_plugins = {plugins}")
    config += ["[ssh_connection]", "pipelining = True", "ssh_args = -o ControlMaster=auto -o ControlPersist=60s -o UserKnownHostsFile=/dev/null"]
    (home / "ansible.cfg").write_text("\n".join(config) + "\n")
    (home / "hosts").write_text("\n".join(farm.addresses[:SLOW_HOSTS]) + "\n")
    copies = [{"path": path, "text": text} for path, text in (FILES | UNITS).items()]
    settings = [{"key": key, "value": after} for key, (_, after) in SYSCTL.items()]
    set_one = '[ "$(sysctl -n {{ item.key }})" = "{{ item.value }}" ] || { sysctl -qw {{ item.key }}={{ item.value }}; echo changed; }'
    tasks = [
        {"name": "folder", "file": {"path": "/etc/bench.d", "state": "directory", "mode": "0755"}},
        {"name": "files", "copy": {"dest": "{{ item.path }}", "content": "{{ item.text }}", "mode": "0644"}, "loop": copies, "loop_control": {"label": "{{ item.path }}"}},
        {"name": "sysctl", "shell": set_one, "loop": settings, "register": "done", "changed_when": "'changed' in done.stdout"},
        {"name": "packages", "command": "dpkg-query -W {{ item }}", "loop": PACKAGES, "changed_when": False},
    ]
    (home / "play.yml").write_text(json.dumps([{"hosts": "all", "gather_facts": False, "tasks": tasks}]))
    argv = [venv / "bin" / "ansible-playbook", "-i", home / "hosts", home / "play.yml"]
    env = {"HOME": str(home), "ANSIBLE_CONFIG": str(home / "ansible.cfg"), "ANSIBLE_NOCOLOR": "1"}
    return lambda: farm.control_run(argv, timeout=900, cwd=home, env=env)


def measure():
    folder = machine.folder()
    hosts = farm.Hosts(HOSTS, folder)
    tools = {"Muster": muster(hosts, folder), "one bare exec": bare(hosts, folder, "true", "true"), "a shell script": bare(hosts, folder, "script", script()),
             "pyinfra": pyinfra(hosts, folder)}
    slow = {"Mitogen": ansible(hosts, folder, True), "Ansible": ansible(hosts, folder, False)}
    done = tools["Muster"]()  # puts muster-node there
    if done.returncode:
        raise SystemExit(f"Muster: {done.stdout[-2000:]}{done.stderr[-2000:]}")
    seen = {}
    for lap in range(ROUNDS):
        for name, tool in (tools | (slow if lap == 0 else {})).items():
            hosts.each(RESET)
            for what in ("all to change", "nothing to change"):
                began = time.monotonic()
                done = tool()
                took = time.monotonic() - began
                if done.returncode:
                    raise SystemExit(f"{name}: {done.stdout[-3000:]}{done.stderr[-2000:]}")
                check(hosts, name, SLOW_HOSTS if name in slow else HOSTS)
                print(f"  {name}, {what}: {took:.1f} s", flush=True)
                seen.setdefault((name, what), []).append(took * (HOSTS / SLOW_HOSTS if name in slow else 1))
    middle = {key: machine.median(values) for key, values in seen.items()}
    rows = [{"what": f"{name}, {what}", "value": f"{value:.2f} s"} for (name, what), value in middle.items()]
    ratios = []
    for what in ("all to change", "nothing to change"):
        for peer, target in (("Ansible", 40), ("Mitogen", None), ("pyinfra", 3), ("a shell script", None), ("one bare exec", 1 / 1.5)):
            ours, theirs = middle["Muster", what], middle[peer, what]
            ratios.append({"what": f"{what}, against {peer}", "muster": f"{ours:.2f} s", "peer": f"{theirs:.2f} s", "ratio": theirs / ours,
                           "target": target and round(target, 2)})
    return rows, ratios


def check(hosts, name, count):
    """Every tool must have done the work: a fast one that did nothing is no peer."""
    if name == "one bare exec":
        return
    path, text = list(FILES.items())[-1]
    hosts.each(f"[ \"$(cat {path})\" = '{text.strip()}' ] && [ \"$(cat /proc/sys/net/ipv4/tcp_orphan_retries)\" = 2 ] && [ -s /etc/systemd/system/bench-4.service ]", count)
