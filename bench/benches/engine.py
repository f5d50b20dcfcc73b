"""The engine alone: each node of a fleet is accepted, moved on, given a reservation of watts, and given its first job with a permit, each in a single pass and transaction.
Against pgbench, which sends the statements of such a pass to the same Postgres, on the same data, over as many connections. Each run writes pgbench's script from
the statements that the engine sent."""

import json
import os
import pathlib
import re
import subprocess
import time

import machine

NODES, ROUNDS, WORKERS = 4000, 3, 8
ACCEPT = "UPDATE nodes SET wish = 'accept', due_at = '2000-01-01'"
MOVED = "SELECT count(*) FROM nodes n JOIN jobs j ON j.node_id = n.id JOIN permits p ON p.id = j.permit_id WHERE n.state = 'inspecting'"
NOTES = ["A pass is one transition, one event of it, one operation, one job with its permit, and the events of both: what pgbench repeats. pgbench decides nothing, parses nothing "
         "of what it reads, and knows what it will write."]


class Postgres:
    """The fleet's own database, started again with its statements logged where a database asks for it."""

    def __init__(self, folder):
        self.folder, self.logs = folder, folder / "jsonlog"
        self.logs.mkdir()
        owner = (folder / "data").stat().st_uid
        os.chown(self.logs, owner, -1)
        self.programs = sorted(pathlib.Path("/usr/lib/postgresql").glob("*/bin"))[-1]
        settings = {"listen_addresses": "", "logging_collector": "on", "log_destination": "jsonlog", "log_directory": self.logs, "log_filename": "log", "shared_buffers": "512MB"}
        argv = [self.programs / "postgres", "-D", folder / "data", "-k", folder]
        for name, value in settings.items():
            argv += ["-c", f"{name}={value}"]
        self.process = machine.Process(argv, user=owner, cwd=folder)
        end = time.monotonic() + 30
        while self.psql("postgres", "SELECT 1", check=False).returncode != 0:
            self.process.check("postgres")
            if time.monotonic() > end:
                raise SystemExit("postgres did not come up in 30 s")
            time.sleep(0.1)

    def psql(self, database, sql, check=True):
        argv = [self.programs / "psql", "-qAtX", "-v", "ON_ERROR_STOP=1", "-h", self.folder, "-U", "muster", "-c", sql, database]
        return subprocess.run([str(word) for word in argv], check=check, capture_output=True, text=True, timeout=120)

    def fresh(self, name):
        """A copy of what was declared, everybody accepted."""
        self.psql("postgres", f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")
        self.psql("postgres", f"CREATE DATABASE {name} TEMPLATE muster")
        self.psql(name, ACCEPT)
        self.psql(name, "CHECKPOINT")

    def moved(self, name, wanted):
        found = int(self.psql(name, MOVED).stdout)
        if found != wanted:
            raise SystemExit(f"{found} of {wanted} nodes have moved and have their job")

    def url(self, name):
        return f"postgresql:///{name}?host={self.folder}&user=muster"

    def turns(self, name):
        """Turns per second of the engine until nobody is due."""
        key = self.folder.parent / "master.key"
        out = machine.run(machine.binary("engine-turns"), self.url(name), key, capture_output=True, timeout=300).stdout
        told = json.loads(out)
        return told["turns"], told["turns"] / told["seconds"]

    def pgbench(self, name, script):
        argv = [self.programs / "pgbench", "-n", "-M", "prepared", "-c", WORKERS, "-j", 2, "-t", NODES // WORKERS, "-f", script, "-h", self.folder, "-U", "muster", name]
        out = machine.run(*argv, capture_output=True, timeout=300, text=True).stdout
        return float(re.search(r"tps = ([0-9.]+) \(without", out).group(1))

    def statements(self):
        """The statements of one turn as the engine sent them, text and parameters, in order; and the ids of the node, its site and its rack."""
        self.fresh("one")
        self.psql("one", "UPDATE nodes SET wish = NULL, due_at = NULL WHERE id <> (SELECT min(id::text)::uuid FROM nodes)")
        ids = self.psql("one", "SELECT id, site_id, rack_id FROM nodes WHERE due_at IS NOT NULL").stdout.strip().split("|")
        self.psql("one", "ALTER DATABASE one SET log_statement = 'all'")
        self.turns("one")
        self.moved("one", 1)
        sessions = {}
        for line in (self.logs / "log.json").read_text().splitlines():
            entry = json.loads(line)
            found = re.match(r"(?:statement|execute [^:]*): (.*)", entry.get("message", ""), re.S)
            if entry.get("dbname") == "one" and found:
                sessions.setdefault(entry["session_id"], []).append((found.group(1), entry.get("detail", "")))
        for said in sessions.values():
            for begin, (sql, _) in enumerate(said):
                ends = [at for at, (other, _) in enumerate(said) if at > begin and other in ("COMMIT", "ROLLBACK", "BEGIN")]
                turn = said[begin:ends[0] + 1] if sql == "BEGIN" and ends else []
                if any("INSERT INTO jobs" in statement for statement, _ in turn):
                    return turn, *ids
        raise SystemExit("no turn was logged")


def script(turn, node, site, rack):
    """The turn for pgbench. What the engine learns in it (the node, its site, its rack) is learned again; what it makes up (ids, nonces) is made up again."""
    known = {f"'{node}'": ":due_id", f"'{site}'": ":node_site", f"'{rack}'": ":node_rack"}
    made, lines = {}, []

    def spell(literal):
        if literal in known:
            return known[literal]
        if re.fullmatch(r"'[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}'", literal):
            return f"('00000000-0000-4000-8000-' || :{made.setdefault(literal, f'made{len(made)}')})::uuid"
        if re.fullmatch(r"'[0-9a-f]{32}'", literal):
            return f"md5((:{made.setdefault(literal, f'made{len(made)}')})::text)"
        return re.sub(r":(?=[A-Za-z])", ": ", literal)  # a colon and a word would be a variable

    for sql, detail in turn:
        values = dict(re.findall(r"\$(\d+) = (NULL|'(?:[^']|'')*')", detail))
        sql = re.sub(r'AS "(\w+)[^"]*"', r"AS \1", sql)
        sql = re.sub(r"\$(\d+)", lambda found: spell(values[found.group(1)]), sql).strip()
        if "SKIP LOCKED" in sql:
            lines.append(f"{sql} \\gset due_")
        elif "AS site" in sql and "AS rack" in sql:
            lines.append(f"{sql} \\gset node_")
        else:
            lines.append(f"{sql};")
    return "\n".join([f"\\set {name} random(100000000000, 999999999999)" for name in made.values()] + lines) + "\n"


def measure():
    folder = machine.folder()
    fleet = [machine.binary("muster-lab"), "fleet", "--nodes", NODES, "--until", "declared", "--muster", machine.binary("muster"), "--dir", folder / "fleet", "--json"]
    machine.run(*fleet, stdout=subprocess.DEVNULL, timeout=240)
    postgres = Postgres(folder / "fleet" / "muster" / "postgres")
    path = folder / "turn.sql"
    path.write_text(script(*postgres.statements()))
    ours, theirs, turns = [], [], NODES
    for round in range(ROUNDS + 1):
        postgres.fresh("engine")
        turns, rate = postgres.turns("engine")
        postgres.moved("engine", NODES)
        postgres.fresh("pgbench")
        tps = postgres.pgbench("pgbench", path)
        postgres.moved("pgbench", NODES)
        if round > 0:
            ours.append(rate)
            theirs.append(tps)
    statements = path.read_text().count(";\n") + path.read_text().count("\\gset")
    ours, theirs = machine.median(ours), machine.median(theirs)
    rows = [{"what": "statements in a turn, BEGIN and COMMIT included", "value": statements}, {"what": f"turns for {NODES} nodes", "value": turns},
            {"what": "the engine", "value": f"{ours:.0f} transitions/s over {WORKERS} connections"},
            {"what": "pgbench", "value": f"{theirs:.0f} transactions/s over {WORKERS} connections"}]
    return rows, [{"what": "transitions/s, against pgbench with the same statements", "muster": f"{ours:.0f}/s", "peer": f"{theirs:.0f}/s", "ratio": ours / theirs, "target": 0.5}]
