"""Memory: the server with 10,000 nodes, at rest and while every list, page and event is read; the agent of a site with 2,000 of them, at rest and with a
job under way on each. Resident memory, and the highest that it was."""

import concurrent.futures
import hashlib
import http.client
import json
import os
import pathlib
import socket
import threading
import time
import urllib.parse

import machine

NODES = int(os.environ.get("BENCH_NODES", 10_000))
OF_AGENT = NODES // 5
# A job on each of its nodes at once.
AT_WORK = OF_AGENT
CLIENTS = 4
NOTES = ["The nodes are declared one by one through the API. The agent's have no BMC: their jobs boot them, and wait for them in vain."]


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


class Muster:
    """Postgres, a server and an agent, each a process of its own, on loopback. No interface has the agent's address: it serves nobody's boot."""

    def __init__(self, folder):
        self.folder, self.data, self.muster = folder, folder / "muster", machine.binary("muster")
        self.api, agents = ("127.0.0.1", free_port()), f"127.0.0.1:{free_port()}"
        self._start("postgres", ["dev", "--postgres-only", "--data-dir", self.data])
        token = self.data / "token"
        self._until("Postgres", lambda: token.exists() and token.read_text())
        url = f"postgresql:///muster?host={self.data / 'postgres'}&user=muster"
        argv = ["server", "--listen", "%s:%d" % self.api, "--agent-listen", agents, "--data-dir", self.data, "--key-file", self.data / "master.key"]
        self.server = self._start("server", argv, MUSTER_DATABASE_URL=url)
        self.headers = {"Authorization": f"Bearer {token.read_text()}"}
        self._own = threading.local()
        self._until("the server", lambda: self.call("GET", "/v1/sites"))
        self.agents = agents

    def start_agent(self, site):
        token, loaders = self.folder / "agent-token", self.folder / "ipxe"
        token.write_text(self.call("POST", f"/v1/sites/{site}/agents", {"name": "a1"})["token"])
        loaders.mkdir()
        for name in ("undionly.kpxe", "snponly.efi", "muster.ipxe"):
            (loaders / name).write_bytes(bytes(1 << 20))
        node = os.environ["MUSTER_NODE"]
        argv = ["agent", "--server", f"https://{self.agents}", "--token-file", token, "--data-dir", self.folder / "agent", "--ipxe-dir", loaders, "--muster-node", node]
        return self._start("agent", argv)

    def _start(self, name, argv, **env):
        return machine.Process([self.muster, *argv], log=self.folder / f"{name}.log", env=os.environ | env)

    def _until(self, what, done, seconds=90):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            try:
                if done():
                    return
            except OSError:
                self._own = threading.local()
            time.sleep(0.1)
        raise SystemExit(f"{what}: not within {seconds} s; the logs end: " + "".join(log.read_text()[-600:] for log in self.folder.glob("*.log")))

    def call(self, method, path, body=None, **headers):
        """One request on this thread's own connection; the answer's JSON, or its text."""
        if not hasattr(self._own, "connection"):
            self._own.connection = http.client.HTTPConnection(*self.api, timeout=60)
        data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        kind = {"Content-Type": "application/json"} if isinstance(body, dict) else {}
        self._own.connection.request(method, path, data, self.headers | kind | headers)
        answer = self._own.connection.getresponse()
        text = answer.read()
        if answer.status >= 400:
            raise SystemExit(f"{method} {path}: {answer.status} {text[:400]!r}")
        return json.loads(text) if answer.headers.get_content_type() == "application/json" else text

    def declare(self, path, spec):
        return self.call("PUT", f"/v1/{path}", {"spec": spec})

    def upload(self, data):
        digest = hashlib.sha256(data).hexdigest()
        self.call("PUT", f"/v1/blobs/sha256/{digest}", data)
        return f"sha256:{digest}"

    def sign_in(self):
        """A console session's cookie."""
        form = urllib.parse.urlencode({"name": "admin", "password": (self.data / "password").read_text(), "next": "/"})
        browser = http.client.HTTPConnection(*self.api, timeout=60)
        origin = "http://%s:%d" % self.api
        browser.request("POST", "/sign-in", form, {"Content-Type": "application/x-www-form-urlencoded", "Origin": origin, "Sec-Fetch-Site": "same-origin"})
        answer = browser.getresponse()
        answer.read()
        cookie = answer.headers.get("Set-Cookie")
        if not cookie:
            raise SystemExit(f"nobody could sign in: {answer.status}")
        return cookie.split(";")[0]


def declare_fleet(muster):
    live = {"kernel": muster.upload(os.urandom(1 << 20)), "initrd": muster.upload(os.urandom(8 << 20))}
    for site in ("here", "there"):
        muster.declare(f"sites/{site}", {"live": live})
    network = {"site": "here", "network": "10.79.0.0/16", "agent_address": "10.79.0.1", "gateway": "10.79.0.1", "mode": "authoritative"}
    muster.declare("subnets/provisioning", network)

    def one(index):
        mac = "52:54:%02x:%02x:%02x:%02x" % tuple(index.to_bytes(4, "big"))
        boots = {"mac": mac} | ({"subnet": "provisioning", "address": f"10.79.{1 + index // 250}.{index % 250 + 2}"} if index < OF_AGENT else {})
        spec = {"site": "here" if index < OF_AGENT else "there", "power": {"manual": {"person": "nobody"}}, "serial": f"S{index:06}", "macs": [boots], "accept": False}
        muster.declare(f"nodes/n{index:05}", spec)

    with concurrent.futures.ThreadPoolExecutor(CLIENTS) as clients:
        list(clients.map(one, range(NODES)))


def read_everything(muster):
    """Every page of the lists, as a program reads them, and the console's pages, as a person does; by several at once."""
    cookie = muster.sign_in()

    def lists(_):
        token, seen = "", 0
        while token is not None:
            page = muster.call("GET", f"/v1/nodes?limit=500{'&page_token=' + urllib.parse.quote(token) if token else ''}")
            seen, token = seen + len(page["items"]), page.get("next_page_token")
        if seen != NODES:
            raise SystemExit(f"{seen} nodes were listed of {NODES}")

    def events(_):
        after, seen = 0, 0
        while items := (page := muster.call("GET", f"/v1/events?after={after}"))["items"]:
            seen, after = seen + len(items), page["last_seq"]
        if seen < NODES:
            raise SystemExit(f"{seen} events were read of at least {NODES}")

    def pages(_):
        for path in ("/", "/nodes", "/nodes/n00000", "/operations", "/racks", "/claims", "/events", "/agents"):
            muster.call("GET", path, Cookie=cookie)

    with concurrent.futures.ThreadPoolExecutor(CLIENTS) as clients:
        for work in (lists, events, pages):
            list(clients.map(work, range(CLIENTS)))


def resident(process):
    """MiB now, and the most so far."""
    status = pathlib.Path(f"/proc/{process.child.pid}/status").read_text()
    value = {line.split(":")[0]: line.split()[1] for line in status.splitlines() if line.startswith(("VmRSS", "VmHWM"))}
    return int(value["VmRSS"]) / 1024, int(value["VmHWM"]) / 1024


def measure():
    muster = Muster(machine.folder())
    empty, _ = resident(muster.server)
    began = time.monotonic()
    declare_fleet(muster)
    declared = time.monotonic() - began
    idle, after_writing = resident(muster.server)
    began = time.monotonic()
    read_everything(muster)
    reading = time.monotonic() - began
    _, read = resident(muster.server)
    agent = muster.start_agent("here")
    configuration = muster.folder / "agent" / "site.json"
    muster._until("the agent", lambda: configuration.exists() and configuration.stat().st_size > 50 * OF_AGENT)
    agent_idle, _ = resident(agent)
    for index in range(AT_WORK):
        muster.call("POST", f"/v1/nodes/n{index:05}/actions/accept", {"reason": "the benchmark"})
    muster._until("the jobs", lambda: (muster.folder / "agent.log").read_text().count("job starts") >= AT_WORK)
    agent_now, agent_most = resident(agent)
    rows = [
        {"what": "server, no node", "value": f"{empty:.0f} MiB"},
        {"what": f"server, {NODES:,} nodes just declared ({NODES / declared:.0f}/s)", "value": f"{idle:.0f} MiB, at most {after_writing:.0f} MiB so far"},
        {"what": f"server, {CLIENTS} at once reading every list, event and page ({reading:.0f} s)", "value": f"at most {read:.0f} MiB"},
        {"what": f"agent of {OF_AGENT:,} nodes, at rest", "value": f"{agent_idle:.0f} MiB"},
        {"what": f"agent of {OF_AGENT:,} nodes, {AT_WORK:,} jobs under way", "value": f"{agent_now:.0f} MiB, at most {agent_most:.0f} MiB"},
    ]
    return rows, []
