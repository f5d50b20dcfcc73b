"""OpenStack Ironic on its fake hardware, with MariaDB: nodes taken from enrolment through `manage` and `provide` to `active`, per second. One API process and
two conductors, which is the quickest of the ways it was tried; it does no more to a node than to write down that it did."""

import concurrent.futures
import http.client
import json
import os
import pathlib
import pwd
import subprocess
import threading
import time
import uuid

import fleet
import machine

NODES = int(os.environ.get("BENCH_NODES", 200))
CLIENTS = 4
ROUNDS = 3
API = ("127.0.0.1", 6385)
CONDUCTORS = ["127.0.0.1", "127.0.0.2"]
LOOK_EVERY = 0.25
# So fast that its machines take no time.
NO_TIME = 1_000_000
NOTES = ["Its hardware is a driver in its own process that succeeds at once, its image is none, its network is no-op: what is measured is its control plane. "
         "Muster's machines take no time either, and are apart: each step of a node is a job over the agents' protocol, with a permit that is redeemed. Up to service that "
         "is fourteen jobs and six states of a node, among them an inspection, an image, a stack, two runs of gates and a scheduler; Ironic's way is three verbs.",
         "To be 50 times as quick, each of the fourteen jobs would have 0.7 ms of both cores for all that it is: leased, its permit redeemed, begun, reported, its node moved on, "
         "each in a transaction. pgbench, which decides nothing, takes 2.8 ms of them for the turn that begins one (see engine): the target is beyond what this Postgres commits."]

INTERFACES = ["bios", "boot", "console", "deploy", "inspect", "management", "network", "power", "raid", "rescue", "storage", "vendor", "firmware"]
CONFIG = """[DEFAULT]
auth_strategy = noauth
enabled_hardware_types = fake-hardware
{interfaces}
rpc_transport = json-rpc
my_ip = 127.0.0.1
host = {host}
state_path = {folder}
log_file = {log}
[api]
host_ip = {api[0]}
port = {api[1]}
api_workers = 1
max_limit = 10000
[json_rpc]
auth_strategy = noauth
host_ip = {host}
port = 8089
[dhcp]
dhcp_provider = none
[conductor]
automated_clean = true
[database]
connection = mysql+pymysql://root@localhost/ironic?unix_socket={socket}&charset=utf8mb4
"""


class Ironic:
    """In a namespace of its own: it listens on fixed ports."""

    def __init__(self, folder):
        self.folder, self.netns, self.bin = folder, f"mbi{os.getpid()}", machine.CACHE / "ironic" / "bin"
        machine.run("ip", "netns", "add", self.netns)
        machine.later(lambda: machine.run("ip", "netns", "del", self.netns))
        machine.run("ip", "-n", self.netns, "link", "set", "lo", "up")
        self.database = self._database()
        subprocess.run([self.bin / "ironic-dbsync", "--config-file", self._config("dbsync", CONDUCTORS[0]), "create_schema"], check=True, capture_output=True)
        names = ["api", *(f"conductor{index}" for index in range(len(CONDUCTORS)))]
        hosts = [CONDUCTORS[0], *CONDUCTORS]
        self.processes = [self._start(name, host) for name, host in zip(names, hosts)]

    def _database(self):
        place, user = self.folder / "mariadb", pwd.getpwnam("mysql")
        place.mkdir()
        os.chown(place, user.pw_uid, user.pw_gid)
        self.socket = place / "socket"
        machine.run("mariadb-install-db", "--no-defaults", f"--datadir={place}/data", "--user=mysql", "--auth-root-authentication-method=normal", stdout=subprocess.DEVNULL)
        argv = ["mariadbd", "--no-defaults", f"--datadir={place}/data", f"--socket={self.socket}", "--user=mysql", "--skip-networking", f"--pid-file={place}/pid"]
        process = machine.Process(argv, log=self.folder / "mariadb.log")
        ask = ["mariadb", "--no-defaults", f"--socket={self.socket}", "--user=root", "-e", "CREATE DATABASE ironic CHARACTER SET utf8mb4"]
        until("MariaDB", self.folder, lambda: subprocess.run(ask, capture_output=True).returncode == 0)
        return process

    def _config(self, name, host):
        interfaces = "\n".join(f"enabled_{kind}_interfaces = {'noop' if kind == 'network' else 'fake'}\ndefault_{kind}_interface = {'noop' if kind == 'network' else 'fake'}"
                               for kind in INTERFACES)
        path = self.folder / f"{name}.conf"
        path.write_text(CONFIG.format(interfaces=interfaces, host=host, folder=self.folder, log=self.folder / f"{name}.log", api=API, socket=self.socket))
        return path

    def _start(self, name, host):
        program = "ironic-api" if name == "api" else "ironic-conductor"
        return machine.Process([self.bin / program, "--config-file", self._config(name, host)], self.netns, self.folder / f"{name}.out")

    def cpu_s(self):
        return sum(process.cpu_s() for process in self.processes), self.database.cpu_s()


def until(what, folder, done, seconds=90):
    end = time.monotonic() + seconds
    while not done():
        if time.monotonic() > end:
            raise SystemExit(f"{what}: not within {seconds} s; the logs end: " + "".join(log.read_text(errors="replace")[-800:] for log in folder.glob("*.[lo]*")))
        time.sleep(0.1)


def lifecycle(ironic, count):
    """Takes so many new nodes to `active`: nodes per second, and CPU seconds of Ironic and of its database. The client runs in Ironic's namespace."""
    before, began = ironic.cpu_s(), time.monotonic()
    script = pathlib.Path(__file__)
    done = subprocess.run(["ip", "netns", "exec", ironic.netns, "python3", script, "client", str(count)], capture_output=True, text=True, timeout=300)
    if done.returncode:
        raise SystemExit(f"Ironic: {done.stdout[-1000:]}{done.stderr[-2000:]}")
    took = time.monotonic() - began
    ours, database = (after - earlier for after, earlier in zip(ironic.cpu_s(), before))
    return {"nodes_per_s": count / took, "cpu_s": ours, "database_cpu_s": database}


def client(count):
    own = threading.local()

    def call(method, path, body=None):
        if not hasattr(own, "connection"):
            own.connection = http.client.HTTPConnection(*API, timeout=60)
        headers = {"Content-Type": "application/json", "X-OpenStack-Ironic-API-Version": "1.80"}
        try:
            own.connection.request(method, path, body and json.dumps(body), headers)
            answer = own.connection.getresponse()
        except http.client.RemoteDisconnected:  # it was idle for too long, and nothing was read
            own.connection.close()
            own.connection.request(method, path, body and json.dumps(body), headers)
            answer = own.connection.getresponse()
        text = answer.read()
        if answer.status >= 400:
            raise SystemExit(f"{method} {path}: {answer.status} {text[:300]!r}")
        return json.loads(text) if text else None

    mine = [str(uuid.uuid4()) for _ in range(count)]

    def everyone(work, wanted):
        list(clients.map(work, mine))
        end = time.monotonic() + 200
        while True:
            states = {node["uuid"]: node["provision_state"] for node in call("GET", "/v1/nodes?limit=10000&fields=uuid,provision_state")["nodes"]}
            if all(states[node] == wanted for node in mine):
                return
            if time.monotonic() > end:
                raise SystemExit(f"not all are {wanted}: {sorted(set(states.values()))}")
            time.sleep(LOOK_EVERY)

    def ask(target):
        return lambda node: call("PUT", f"/v1/nodes/{node}/states/provision", {"target": target})

    with concurrent.futures.ThreadPoolExecutor(CLIENTS) as clients:
        everyone(lambda node: call("POST", "/v1/nodes", {"uuid": node, "driver": "fake-hardware"}), "enroll")
        everyone(ask("manage"), "manageable")
        everyone(ask("provide"), "available")
        everyone(ask("active"), "active")


def measure():
    ironic = Ironic(machine.folder())
    drivers = ["ip", "netns", "exec", ironic.netns, "curl", "-sf", "http://%s:%d/v1/drivers" % API]
    until("Ironic", ironic.folder, lambda: b"fake-hardware" in subprocess.run(drivers, capture_output=True).stdout)
    laps = [lifecycle(ironic, NODES) for _ in range(ROUNDS)]
    middle = {key: machine.median([lap[key] for lap in laps]) for key in laps[0]}
    per_node = (middle["cpu_s"] + middle["database_cpu_s"]) / NODES
    for process in (*ironic.processes, ironic.database):
        process.stop()
    reports = [fleet.run(NODES, NO_TIME, "in-service")[0] for _ in range(ROUNDS)]
    ours = machine.median([report["nodes_per_s"] for report in reports])
    steps = machine.median([report["transitions_per_s"] for report in reports])
    return [
        {"what": f"{NODES} nodes, from enrolment to active", "value": f"{middle['nodes_per_s']:.1f} nodes/s, {per_node:.3f} s of CPU each"},
        {"what": "CPU of Ironic, and of MariaDB", "value": f"{middle['cpu_s']:.1f} s, {middle['database_cpu_s']:.1f} s"},
        {"what": f"Muster: {NODES} nodes, from declaration to service", "value": f"{ours:.1f} nodes/s, {steps:.0f} transitions/s"},
    ], [{"what": "nodes/s into service, against Ironic", "muster": f"{ours:.1f}/s", "peer": f"{middle['nodes_per_s']:.1f}/s", "ratio": ours / middle["nodes_per_s"], "target": 50}]


if __name__ == "__main__":
    client(int(os.sys.argv[2]))
