"""Rollouts: one tick of an open rollout over a pool of 1,000, 10,000 and 100,000 nodes in service, with the reads behind it and nothing to do: 20 nodes change, 20 wait for
their jobs, and every tick plans all others again, while outcomes of other nodes are written. Against itself with fewer nodes."""

import http.client
import json
import os
import subprocess

import lists
import machine
import memory

FLEETS = [int(nodes) for nodes in os.environ.get("BENCH_NODES", "1000 10000 100000").split()]
TICKS = 21
# Transactions a second beside the ticks, each with the rows that the outcome of a job changes.
OUTCOMES = 50
OUTCOME = """
\\set n random(0, NODES - 1)
BEGIN;
UPDATE nodes SET updated_at = now() WHERE name = 'n' || lpad((:n)::text, 6, '0');
UPDATE claims SET updated_at = now() WHERE name = 'c-n' || lpad((:n)::text, 6, '0');
COMMIT;
"""
NOTES = ["Half of the nodes have a job of a known end, and racks hold 32. The nodes are written by one statement; pool, revisions and rollout are made through the API. The "
         "engine and the agents stand still: a tick reads the pool, its members, their jobs and the rollout, and plans. Beside the ticks pgbench changes the rows of a node "
         f"and its claim, {OUTCOMES} times a second, as outcomes of jobs do; 20 changing nodes have less than one outcome a second. The statistics of "
         "the rollout's rows are gathered first, as autovacuum does within a minute of a start.",
         "Until 2026-11-29 the connections of this measurement had the compiler of PostgreSQL on (`jit`), which the server switches off: 124.1 ms at 10,000 nodes."]
DIGESTS = {name: "sha256:" + name[0] * 64 for name in ("abc", "bcd", "cde")}


def stack(version):
    return {"version": version, "image": "debian-12", "packages": {}, "kernel_args": [f"v={version}"],
            "lock": {"image_digest": DIGESTS["abc"], "arch": "amd64", "packages": []}, "bundle": DIGESTS["cde"]}


# In the order of their references.
DOCUMENTS = {
    "sites/lab": {},
    "hardware_profiles/virtual": {"model": "virtual", "sockets": 1, "cores_per_socket": 2, "memory_mib": 1800, "schedulable_memory_mib": 1500,
                                  "root_disk": {"serial_prefix": "ROOT"}, "power_max_w": 300},
    "images/debian-12": {"name": "debian-12", "version": "1", "os": "debian", "os_version": "12", "arch": "amd64", "digest": DIGESTS["abc"], "size": 1000,
                         "raw_digest": DIGESTS["bcd"], "raw_size": 4000, "kernel": "6.1.0-1-amd64", "packages": [], "partitions": {"esp": 1, "root": 2}},
    "stacks/base": stack("1"),
    "suites/smoke": {"name": "smoke", "version": "1", "gates": [{
        "id": "node.profile", "title": "Facts fit the profile", "stage": "inventory", "timeout_s": 30, "parser": "facts", "finding": "The machine is not what was bought.",
        "criteria": [{"metric": "profile.misses", "op": "==", "limit": 0, "unit": "misses"}]}]},
    "clusters/slurm": {"kind": "slurm", "site": "lab", "conf": "/etc/slurm/slurm.conf", "include_dir": "/etc/slurm", "partition": "gpu", "address": "10.77.0.1"},
    "pools/gpu": {"image": "debian-12", "stack": "base", "suite": "smoke", "cluster": "slurm", "max_unavailable": 40},
}
POLICY = {"canary": None, "waves": {"sizes": ["100%"]}, "budgets": {"max_changing": 20, "max_waiting": 20, "max_validating": "100%"}}

FILL = """
SET session_replication_role = replica;
CREATE FUNCTION pg_temp.named(wanted text, called text) RETURNS uuid LANGUAGE sql STABLE AS
  $$ SELECT id FROM objects WHERE kind = wanted AND name = called $$;
INSERT INTO objects (id, kind, name, spec, created_at, updated_at)
  SELECT gen_random_uuid(), 'rack', 'r' || n, '{"site": "lab", "units": 42}', now(), now() FROM generate_series(0, NODES / 32) n;
INSERT INTO nodes (id, name, labels, annotations, spec, site_id, rack_id, rack_unit, profile_id, serial, power, power_person, created_at, updated_at, state, entered_at,
                   epoch, in_cluster, os_host_key)
  SELECT gen_random_uuid(), 'n' || lpad(n::text, 6, '0'), '{}', '{}', jsonb_build_object('site', 'lab', 'rack', rack.name), pg_temp.named('site', 'lab'), rack.id,
         1 + n % 32, pg_temp.named('hardware_profile', 'virtual'), 'S' || n, 'manual', 'somebody', now(), now(), 'in_service', now() - interval '1 day', 1, true,
         'ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI' || rpad('n' || n, 43, 'A')
  FROM generate_series(0, NODES - 1) n JOIN objects rack ON rack.kind = 'rack' AND rack.name = 'r' || n / 32;
INSERT INTO claims (id, name, node_id, pool_id, spec, state, epoch, actor, created_at, updated_at, assigned_id, imaged_id, running_id, served_at)
  SELECT gen_random_uuid(), 'c-' || n.name, n.id, pool.id, '{}', 'bound', 1, 'user:admin', now(), now(), one.id, one.id, one.id, now() - interval '1 day'
  FROM nodes n, objects pool JOIN pool_revisions one ON one.pool_id = pool.id AND one.number = 1 WHERE pool.kind = 'pool' AND pool.name = 'gpu';
INSERT INTO scheduler_looks SELECT pg_temp.named('cluster', 'slurm'), now() + interval '2 minutes';
INSERT INTO scheduler_jobs (node_id, cluster_id, jobs, running)
  SELECT id, pg_temp.named('cluster', 'slurm'), jsonb_build_array(jsonb_build_object('id', serial, 'user', 'alice', 'state', 'RUNNING', 'ends', now() + interval '5 hours')), 1
  FROM nodes WHERE rack_unit % 2 = 0;
"""
# A look of an agent is fresh for three minutes.
FRESH = "UPDATE scheduler_looks SET seen_at = now() + interval '2 minutes'"


class Fleet:
    """A database of its own with a running rollout, and nobody on it."""

    def __init__(self, folder, postgres, nodes):
        self.folder, self.postgres, self.name, self.nodes = folder, postgres, f"rollout{nodes}", nodes
        postgres.psql("postgres", f"CREATE DATABASE {self.name} TEMPLATE muster")
        self.address = f"127.0.0.1:{memory.free_port()}"
        self.token = (folder / "muster" / "token").read_text().strip()
        self.declare()
        for sql in (FILL.replace("NODES", str(nodes)), "VACUUM ANALYZE", "CHECKPOINT"):
            argv = [postgres.programs / "psql", "-qX", "-v", "ON_ERROR_STOP=1", "-h", postgres.folder, "-U", "muster", self.name]
            machine.run(*argv, input=sql, text=True, stdout=subprocess.DEVNULL, timeout=400)
        self.begin()

    def serve(self):
        argv = [machine.binary("muster"), "server", "--listen", self.address, "--agent-listen", f"127.0.0.1:{memory.free_port()}", "--data-dir", self.folder / self.name,
                "--key-file", self.folder / "muster" / "master.key"]
        log = self.folder / f"{self.name}.log"
        server = machine.Process(argv, log=log, env=os.environ | {"MUSTER_DATABASE_URL": self.postgres.url(self.name)})
        for _ in range(600):
            try:
                self.ask("GET", "/v1/sites")
                return server
            except OSError:
                server.check("the server")
                machine.time.sleep(0.1)
        raise SystemExit("the server: not within a minute: " + log.read_text()[-600:])

    def declare(self):
        server = self.serve()
        for path, spec in DOCUMENTS.items():
            self.ask("PUT", f"/v1/{path}", {"spec": spec})
        self.ask("PUT", "/v1/stacks/base", {"spec": stack("2")})
        server.stop()

    def begin(self):
        """Starts the rollout."""
        server = self.serve()
        plan = self.ask("POST", "/v1/rollouts", {"pool": "gpu", "revision": 2, "policy": POLICY})
        self.ask("POST", f"/v1/rollouts/{plan['name']}/actions/start", {"plan": plan["plan"]})
        server.stop()
        # Autovacuum does so within a minute of the start.
        self.postgres.psql(self.name, "ANALYZE rollout_nodes")

    def ask(self, method, path, body=None):
        connection = http.client.HTTPConnection(*self.address.split(":"), timeout=120)
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
        connection.request(method, path, json.dumps(body) if body is not None else None, headers)
        answer = connection.getresponse()
        text = answer.read()
        if answer.status >= 300:
            raise SystemExit(f"{method} {path}: {answer.status} {text[:600]!r}")
        return json.loads(text)

    def write_outcomes(self):
        script = self.folder / f"{self.name}.sql"
        script.write_text(OUTCOME.replace("NODES", str(self.nodes)))
        argv = [self.postgres.programs / "pgbench", "--no-vacuum", "--client=2", f"--rate={OUTCOMES}", "--time=600", f"--file={script}",
                "--host", self.postgres.folder, "--username=muster", self.name]
        return machine.Process(argv, log=self.folder / f"{self.name}-outcomes.log")

    def ticks(self):
        """Milliseconds of each tick, after the ticks that change something."""
        self.postgres.psql(self.name, FRESH)
        argv = [machine.binary("rollout-ticks"), self.postgres.url(self.name), self.folder / "muster" / "master.key", TICKS]
        outcomes = self.write_outcomes()
        told = json.loads(machine.run(*argv, capture_output=True, text=True, timeout=900).stdout)
        outcomes.check("pgbench")
        outcomes.stop()
        marks = [self.postgres.programs / "psql", "-qAtX", "-h", self.postgres.folder, "-U", "muster", self.name, "-c",
                 "SELECT mark, count(*) FROM rollout_nodes WHERE mark IN ('changing', 'waiting') GROUP BY mark ORDER BY mark"]
        found = machine.run(*marks, capture_output=True, text=True, timeout=60).stdout.split()
        if found != ["changing|20", "waiting|20"]:
            raise SystemExit(f"20 nodes change and 20 wait in the measured state, and not {found}")
        return told["milliseconds"]


def measure():
    folder = machine.folder()
    postgres = lists.prepared(folder)
    took = {nodes: Fleet(folder, postgres, nodes).ticks() for nodes in FLEETS}
    rows = [{"what": f"a tick over {nodes:,} nodes, median / longest of {TICKS}", "value": f"{machine.median(took[nodes]):.1f} / {max(took[nodes]):.1f} ms"} for nodes in FLEETS]
    ratios = []
    for few, many in zip(FLEETS, FLEETS[1:]):
        each = {nodes: machine.median(took[nodes]) / nodes * 1000 for nodes in (few, many)}
        ratios.append({"what": f"time for each node of {many:,}, against each of {few:,}", "muster": f"{each[many]:.1f} µs", "peer": f"{each[few]:.1f} µs",
                       "ratio": each[few] / each[many], "target": 1 / 1.5})
    if 10_000 in took:
        median = machine.median(took[10_000])
        ratios.append({"what": "a tick over 10,000 nodes, against 100 ms", "muster": f"{median:.1f} ms", "peer": "100 ms", "ratio": 100 / median, "target": 1})
    return rows, ratios
