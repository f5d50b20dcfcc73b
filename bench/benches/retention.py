"""Retention: ten million events, of which a month is older than events are kept. The old month is exported and removed by the server's own task, while four writers
write events and read the newest ones. Against the same writers without a removal, for as long."""

import json
import os
import subprocess

import machine
from lists import prepared

# `bench/run --events COUNT retention` sets the number.
EVENTS = int(os.environ.get("BENCH_EVENTS", 10_000_000))
OLD, BATCH, PAUSE_MS = EVENTS // 12, 1_000_000, 100
NOTES = ["Each of the old events is in a sealed segment; a segment is exported to a file, synced, and removed in one transaction. A turn of a writer is a transaction with one event, "
         "and a read of the newest hundred. The longest turn is the longest pause of a writer: the promise is at most 100 ms."]

# Events as a fleet has them: most of nodes, with a short document.
FILL = """
INSERT INTO events (id, at, actor, kind, node_id, summary, detail)
  SELECT gen_random_uuid(), now() - interval 'DAYS days', 'agent:lab', 'step.succeeded', md5((n % 10000)::text)::uuid, 'inspect: done',
         jsonb_build_object('step', 'inspect', 'attempt', 1, 'round', n % 3)
  FROM generate_series(1, COUNT) n;
"""


def measure():
    folder = machine.folder()
    postgres = prepared(folder)
    url, key = postgres.url("muster"), folder / "muster" / "master.key"
    program = machine.binary("remove-events")

    def fill(count, days):
        for begin in range(0, count, BATCH):
            sql = FILL.replace("DAYS", str(days)).replace("COUNT", str(min(BATCH, count - begin)))
            argv = [postgres.programs / "psql", "-qX", "-v", "ON_ERROR_STOP=1", "-h", postgres.folder, "-U", "muster", "muster"]
            machine.run(*argv, input=sql, text=True, stdout=subprocess.DEVNULL, timeout=600)

    fill(OLD, 450)
    machine.run(program, "seal", url, key, 450, OLD, timeout=1200)
    fill(EVENTS - OLD, 10)
    machine.run(program, "seal", url, key, 0, 1, timeout=60)
    postgres.psql("muster", "ANALYZE events")
    postgres.psql("muster", "CHECKPOINT")
    measured = json.loads(machine.run(program, "measure", url, key, folder / "exported", stdout=subprocess.PIPE, text=True, timeout=1800).stdout)
    if measured["removed"] < OLD:
        raise SystemExit(f"{measured['removed']} of {OLD} events were removed")
    beside, alone = measured["beside"], measured["alone"]
    rows = [
        {"what": "events, and removed", "value": f"{EVENTS:,}, {measured['removed']:,} in {measured['seconds']:.1f} s"},
        *({"what": f"a writer's turn {name}", "value": f"p50 {of['p50']:.1f} ms, p99 {of['p99']:.1f} ms, longest {of['longest']:.1f} ms, {of['turns']:,} turns"}
          for name, of in (("beside the removal", beside), ("without a removal", alone))),
    ]
    ratios = [
        {"what": "longest pause of a writer beside the removal, against 100 ms", "muster": f"{beside['longest']:.1f} ms", "peer": f"{PAUSE_MS} ms",
         "ratio": PAUSE_MS / beside["longest"], "target": 1},
        {"what": "p99 of a writer's turn beside the removal, against without", "muster": f"{beside['p99']:.1f} ms", "peer": f"{alone['p99']:.1f} ms",
         "ratio": alone["p99"] / beside["p99"], "target": None},
    ]
    return rows, ratios
