"""Lists: pages of 100 nodes of a real server over HTTP, of lists that are filtered and sorted in several ways, each by itself, with 100,000 nodes and with 1,000: the first
page, the last one, the ten that took longest when the list was walked through, and others at random.
Against itself with the smaller fleet, and against the same statements sent raw: those that the server sent for the very same pages, its token's included, each
kept prepared where the server keeps it, by a client that does nothing else with the rows."""

import json
import os
import random
import re
import subprocess
import urllib.parse

import machine
import memory
from engine import Postgres

SMALL, LARGE = 1_000, int(os.environ.get("BENCH_NODES", 100_000))
LISTS = {
    "all": {},
    "state": {"filter": "state=in_service"},
    "rack": {"filter": 'rack~"r1*"'},
    "label": {"filter": "label.gpu=h200"},
    "name": {"filter": 'name~"n0*"'},
    "pool": {"filter": "pool=p3 AND state!=failed"},
    "three": {"filter": 'state!=failed AND rack~"r1*" AND label.gpu=h200'},
    "down": {"sort": "-name"},
    "newest": {"sort": "-created_at", "filter": "state=in_service"},
}
PAGE, PLACES, ROUNDS = 100, 40, 7
NOTES = ["A page has its nodes with spec, labels, addresses, claim, last gate run, last attempt and last facts. The nodes are written by one statement, in a fleet's proportions: "
         "racks of 32, seven of ten in service and claimed for one of four pools, a third of them h200. Raw, rows are read and nothing is made of them. A page's time is the median of its seven rounds, and p99 is that of the dearest "
         "page in a hundred: a shared machine stands still for a tenth of a second now and then, whatever runs on it."]

# Nodes as a fleet has them: where they are and what they have is told by their number alone.
FILL = """
SET session_replication_role = replica;
CREATE FUNCTION pg_temp.made(kind text, number bigint) RETURNS uuid LANGUAGE sql AS
  $$ SELECT (lpad(to_hex(1700000000000 + number), 12, '0') || '7' || substr(md5(kind || number), 1, 3) || '8' || substr(md5(number || kind), 1, 15))::uuid $$;
CREATE FUNCTION pg_temp.object(kind text, name text, number bigint) RETURNS uuid LANGUAGE sql AS
  $$ INSERT INTO objects (id, kind, name, spec, created_at, updated_at) VALUES (pg_temp.made(kind, number), kind, name, '{}', now(), now()) RETURNING id $$;
SELECT pg_temp.object('site', 's' || n, n) FROM generate_series(0, 1) n;
SELECT pg_temp.object('pool', 'p' || n, n) FROM generate_series(0, 3) n;
SELECT pg_temp.object('hardware_profile', 'h' || n, n) FROM generate_series(0, 2) n;
SELECT pg_temp.object('subnet', 'net' || n, n) FROM generate_series(0, 1) n;
SELECT pg_temp.object('rack', 'r' || n, n) FROM generate_series(0, NODES / 32) n;
INSERT INTO nodes (id, name, labels, annotations, spec, site_id, rack_id, rack_unit, profile_id, serial, power, power_person, created_at, updated_at, state, entered_at,
                   epoch, in_cluster, reason, failed_phase)
  SELECT pg_temp.made('node', n), 'n' || lpad(n::text, 6, '0'),
         jsonb_build_object('gpu', (ARRAY['h100', 'h200', 'b200'])[1 + n % 3], 'row', 'row-' || n / 640, 'slot', (n % 32)::text, 'owner', 'team-' || n % 40),
         jsonb_build_object('ticket', 'https://tickets.example/' || n),
         jsonb_build_object('site', 's' || n % 2, 'rack', 'r' || n / 32, 'rack_unit', 1 + n % 32, 'profile', 'h' || n % 3, 'serial', 'S' || n,
                            'power', jsonb_build_object('manual', jsonb_build_object('person', 'somebody')),
                            'macs', jsonb_build_array(jsonb_build_object('mac', '52:54:00:00:00:01', 'subnet', 'net0', 'address', '10.0.0.1'))),
         pg_temp.made('site', n % 2), pg_temp.made('rack', n / 32), 1 + n % 32, pg_temp.made('hardware_profile', n % 3), 'S' || n, 'manual', 'somebody', now(), now(),
         CASE WHEN n % 10 < 7 THEN 'in_service' WHEN n % 10 = 7 THEN 'available' WHEN n % 20 = 8 THEN 'failed' WHEN n % 20 = 9 THEN 'quarantined' ELSE 'available' END,
         now() - (n % 1000) * interval '1 minute', 1, n % 10 < 7, CASE WHEN n % 20 = 9 THEN 'a GPU is missing' END, CASE WHEN n % 20 = 8 THEN 'imaging' END
  FROM (SELECT (n * 7919) % NODES AS n FROM generate_series(0, NODES - 1) n) mixed;
INSERT INTO node_macs SELECT ('52:54:' || substr(to_hex(4294967296 + n), 2, 2) || ':' || substr(to_hex(4294967296 + n), 4, 2) || ':' || substr(to_hex(4294967296 + n), 6, 2) || ':'
         || substr(to_hex(4294967296 + n), 8, 2))::macaddr, pg_temp.made('node', n), pg_temp.made('subnet', n % 2), '10.0.0.0'::inet + n + 2 FROM generate_series(0, NODES - 1) n;
INSERT INTO claims (id, name, node_id, pool_id, spec, state, epoch, actor, created_at, updated_at)
  SELECT pg_temp.made('claim', n), 'c' || n, pg_temp.made('node', n), pg_temp.made('pool', n % 4), '{}', 'bound', 1, 'user:admin', now(), now()
  FROM generate_series(0, NODES - 1) n WHERE n % 10 < 7;
INSERT INTO jobs (id, node_id, site_id, visit, step, kind, epoch, state, not_before, timeout_s, created_at, finished_at, result, attempt)
  SELECT pg_temp.made('job' || j, n), pg_temp.made('node', n), pg_temp.made('site', n % 2), j, 'gates', 'gates', 1, 'succeeded', now(), 60, now(), now(), '{}', 1
  FROM generate_series(0, NODES - 1) n, generate_series(1, 3) j;
INSERT INTO gate_runs (id, node_id, job_id, suite, verdict, fingerprint, finished_at)
  SELECT pg_temp.made('run' || j, n), pg_temp.made('node', n), pg_temp.made('job' || j, n), 'smoke', 'pass', 'f', now()
  FROM generate_series(0, NODES - 1) n, generate_series(1, 3) j;
INSERT INTO facts (node_id, source, observed_at, facts) SELECT pg_temp.made('node', n), 'live', now() - j * interval '1 day', '{}' FROM generate_series(0, NODES - 1) n, generate_series(1, 2) j;
"""


class Fleet:
    """A database of its own, and a server on it."""

    def __init__(self, folder, postgres, nodes):
        self.postgres, self.name, self.nodes = postgres, f"fleet{nodes}", nodes
        postgres.psql("postgres", f"CREATE DATABASE {self.name} TEMPLATE muster")
        for sql in (FILL.replace("NODES", str(nodes)), "VACUUM ANALYZE", "CHECKPOINT"):
            argv = [postgres.programs / "psql", "-qX", "-v", "ON_ERROR_STOP=1", "-h", postgres.folder, "-U", "muster", self.name]
            machine.run(*argv, input=sql, text=True, stdout=subprocess.DEVNULL, timeout=400)
        self.address = f"127.0.0.1:{memory.free_port()}"
        self.token = folder / "muster" / "token"
        argv = [machine.binary("muster"), "server", "--listen", self.address, "--agent-listen", f"127.0.0.1:{memory.free_port()}", "--data-dir", folder / self.name,
                "--key-file", folder / "muster" / "master.key"]
        self.server = machine.Process(argv, log=folder / f"{self.name}.log", env=os.environ | {"MUSTER_DATABASE_URL": postgres.url(self.name)})
        self.log = folder / f"{self.name}.log"

    def paths(self, query, places):
        """Full pages of a list, as the tokens of other pages lead there: the first one, the last one, those that took longest when the whole list was walked through, and
        others at random."""
        drawn = random.Random(7)
        walked, token = [], None
        while True:
            began = machine.time.monotonic()
            page = self.get(self.path(query, PAGE, token))
            if len(page["items"]) == PAGE:
                walked.append((machine.time.monotonic() - began, len(walked), token))
            token = page.get("next_page_token")
            if token is None:
                break
        if not walked:
            raise SystemExit(f"no page of {query} has {PAGE} of the {self.nodes} nodes")
        dear = sorted(walked, key=lambda one: one[0], reverse=True)[:places // 4]
        chosen = [walked[0], walked[-1], *dear]
        chosen += [drawn.choice(walked) for _ in range(places - len(chosen))]
        return [self.path(query, PAGE, token) for _, _, token in chosen[:places]]

    def path(self, query, limit, token, more=""):
        query = query | {"limit": limit} | ({"page_token": token} if token else {})
        return f"/v1/nodes?{urllib.parse.urlencode(query)}{more}"

    def get(self, path):
        import http.client
        connection = http.client.HTTPConnection(*self.address.split(":"), timeout=60)
        connection.request("GET", path, headers={"Authorization": f"Bearer {self.token.read_text().strip()}"})
        answer = connection.getresponse()
        body = answer.read()
        if answer.status != 200:
            raise SystemExit(f"{path}: {answer.status} {body[:400]!r}")
        return json.loads(body)

    def statements(self, paths):
        """What the server sends its database for each of the pages."""
        log = self.postgres.logs / "log.json"
        pages = []
        self.postgres.psql("postgres", f"ALTER DATABASE {self.name} SET log_statement = 'all'")
        self.postgres.psql("postgres", f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{self.name}'")
        for path in paths:
            self.until(lambda: self.get(path))
            own = self.said_for(path, log)
            if len(own) != 1:
                raise SystemExit(f"{len(own)} sessions answered {path}")
            pages.append(own[0])
        self.postgres.psql("postgres", f"ALTER DATABASE {self.name} RESET log_statement")
        self.postgres.psql("postgres", f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{self.name}'")
        self.until(lambda: self.get(paths[0]))
        return pages

    def said_for(self, path, log):
        """What one session said for a page. The log is written by a process of its own, a moment later: what is mixed up is asked again."""
        own = []
        for _ in range(10):
            machine.time.sleep(0.05)
            begin = log.stat().st_size
            self.get(path)
            for _ in range(40):
                own = self.said_since(log, begin)
                if own:
                    break
                machine.time.sleep(0.05)
            if len(own) == 1:
                break
        return own

    def said_since(self, log, begin):
        """Statements and their values, for each session that answered a page since then."""
        with open(log) as opened:
            opened.seek(begin)
            # A line that had been half written at `begin` is of before.
            entries = [json.loads(line) for line in opened if line.startswith("{") and line.endswith("\n")]
        said = {}
        for entry in entries:
            found = re.match(r"execute ([^:]*): (.*)", entry.get("message", ""), re.S)
            if entry.get("dbname") == self.name and found and re.search(r"\bFROM (nodes [nk]|node_macs m|tokens|objects)\b", found.group(2)):
                values = dict(re.findall(r"\$(\d+) = (NULL|'(?:[^']|'')*')", entry.get("detail", "")))
                said.setdefault(entry["session_id"], []).append((found.group(2), [values[str(at + 1)] for at in range(len(values))], found.group(1) != "<unnamed>"))
        # Its other sessions are the engine's and the tasks', which ask other things. The addresses are what a page asks for last.
        return [own for own in said.values() if any("node_macs m" in sql for sql, *_ in own)]

    def until(self, done):
        for _ in range(600):
            try:
                return done()
            except (OSError, SystemExit, ValueError):
                self.server.check("the server")
                machine.time.sleep(0.1)
        raise SystemExit("the server: not within a minute: " + self.log.read_text()[-600:])

    def http(self, paths):
        return self.timed(["http", self.address, self.token], paths)

    def raw(self, pages):
        return self.timed(["raw", self.postgres.url(self.name)], [json.dumps(page) for page in pages])

    def timed(self, argv, lines):
        out = machine.run(machine.binary("list-pages"), *argv, input="\n".join(lines), capture_output=True, text=True, timeout=120).stdout
        return [int(line) / 1000 for line in out.split()]


def percentile(values, share):
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def prepared(folder):
    """The fleet's own database, with its schema, an administrator's token and its key, and nobody on it."""
    dev = machine.Process([machine.binary("muster"), "dev", "--postgres-only", "--data-dir", folder / "muster"], log=folder / "dev.log")
    token = folder / "muster" / "token"
    for _ in range(900):
        if token.exists() and token.read_text():
            break
        dev.check("muster dev")
        machine.time.sleep(0.1)
    dev.stop()
    return Postgres(folder / "muster" / "postgres")


def measure():
    folder = machine.folder()
    postgres = prepared(folder)
    fleets = {nodes: Fleet(folder, postgres, nodes) for nodes in (SMALL, LARGE)}
    paths, pages = {}, {}
    for nodes, fleet in fleets.items():
        fleet.until(lambda: fleet.get("/v1/sites"))
        for name, query in LISTS.items():
            paths[nodes, name] = fleet.paths(query, PLACES)
            pages[nodes, name] = fleet.statements(paths[nodes, name][:PLACES // 2]) * 2
    took = {}
    for round in range(ROUNDS + 1):
        for name in LISTS:
            for nodes, fleet in fleets.items():
                for how, times in (("http", fleet.http(paths[nodes, name])), ("raw", fleet.raw(pages[nodes, name]))):
                    if round > 0:
                        took.setdefault((how, nodes, name), []).append(times)

    def of(how, nodes, share, names=tuple(LISTS)):
        """Over the pages, each by the median of its rounds: a machine that stands still for a moment does so for one round of a page, a page that is dear is so in all."""
        return percentile([machine.median(rounds) for name in names for rounds in zip(*took[how, nodes, name])], share)

    rows = []
    for name, query in LISTS.items():
        said = " ".join(f"{key}={value}" for key, value in query.items()) or "no filter"
        told = [f"{nodes:,}: {of('http', nodes, 0.5, [name]):.1f} / {of('http', nodes, 0.99, [name]):.1f} ms, raw {of('raw', nodes, 0.5, [name]):.1f} / "
                f"{of('raw', nodes, 0.99, [name]):.1f} ms" for nodes in (SMALL, LARGE)]
        rows.append({"what": f"`{said}`, p50 / p99".replace("|", "\\|"), "value": "; ".join(told)})
    rows.insert(0, {"what": "all of them, p50", "value": "; ".join(f"{nodes:,}: {of('http', nodes, 0.5):.1f} ms, raw {of('raw', nodes, 0.5):.1f} ms" for nodes in (SMALL, LARGE))})
    return rows, [compared for name in LISTS for compared in targets(name, of)]


def targets(name, of):
    """Each list by itself: one that is not flat is not hidden by eight that are."""
    (small, large), raw = (of("http", nodes, 0.99, [name]) for nodes in (SMALL, LARGE)), of("raw", LARGE, 0.99, [name])
    return [
        {"what": f"{name}: p99 of a page of {LARGE:,}, against one of {SMALL:,}", "muster": f"{large:.1f} ms", "peer": f"{small:.1f} ms", "ratio": small / large, "target": 1 / 1.5},
        {"what": f"{name}: p99 of a page of {LARGE:,}, against the same statements raw", "muster": f"{large:.1f} ms", "peer": f"{raw:.1f} ms", "ratio": raw / large, "target": 0.5},
    ]
