//! Retention: old records go, the records that decide stay, and a node under a legal hold keeps all.

use jiff::SignedDuration;
use muster_api::tokens::Role;
use muster_core::ids::{AgentId, EventId, NodeId, ObjectId};
use muster_core::wire::pair::PairWay;
use muster_core::wire::result::JobResult;
use muster_server::audit::{self, Copies, Fault, Report};
use muster_server::db;
use muster_server::db::events::NewEvent;
use muster_server::tasks;
use muster_server::tasks::retention::{pairs, records, segments};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::support::fleet;
use crate::support::server::{Caller, Server};

const DAY: SignedDuration = SignedDuration::from_hours(24);

/// Runs a statement past the server.
async fn run(server: &Server, statement: &'static str) {
    sqlx::query(statement)
        .execute(&server.app.pool)
        .await
        .unwrap();
}

async fn count(server: &Server, query: &'static str) -> i64 {
    sqlx::query_scalar(query)
        .fetch_one(&server.app.pool)
        .await
        .unwrap()
}

async fn find_node(server: &Server, name: &str) -> NodeId {
    let id: Uuid = sqlx::query_scalar("SELECT id FROM nodes WHERE name = $1")
        .bind(name)
        .fetch_one(&server.app.pool)
        .await
        .unwrap();
    NodeId(id)
}

/// Puts a node under a legal hold.
async fn hold(server: &Server, name: &str) {
    let (node, now) = (find_node(server, name).await, server.app.clock.now());
    let mut conn = server.app.pool.acquire().await.unwrap();
    let held = db::legal_holds::insert(&mut conn, node, "a lawsuit", "host:ada@db", now).await;
    assert!(held.unwrap());
}

async fn declare_nodes(admin: &Caller, count: u8) {
    for number in 1..=count {
        let path = format!("/v1/nodes/n{number}");
        admin.put(&path, &fleet::node(number)).await.expect(201);
    }
}

/// A passed gate with evidence.
fn gate_result() -> Value {
    let evidence = json!({ "argv": ["cat"], "exit": 0, "stdout": "raw text", "stderr": "", "versions": { "cat": "9.1" },
        "kernel_log": "raw text" });
    let measured = json!({ "metric": "gpu.count", "entity": "", "value": 8.0, "op": "==", "limit": 8.0, "unit": "count", "verdict": "pass" });
    json!({ "gate": "node.profile", "title": "Profile", "stage": "node", "required": true, "verdict": "pass", "reason": "8 of 8",
        "measured": [measured], "started_at": "2026-01-05T08:00:00Z", "duration_ms": 1, "evidence": evidence })
}

/// Stores old records of the nodes n1 and n2. Each node has five gate runs: two old passes of two
/// versions, an old failure, a failure of the day before the removal, and an old failure of another
/// suite. Each node also has an old failed job.
async fn store_records(server: &Server) {
    let job =
        json!({ "kind": "gated", "results": [gate_result()], "fingerprint": fleet::digest("f") });
    sqlx::query(
        "INSERT INTO jobs (id, node_id, site_id, visit, step, kind, epoch, state, attempt, not_before, timeout_s, created_at, finished_at, result)
         SELECT ('00000000-0000-0000-000' || k || '-00000000000' || right(n.name, 1))::uuid, n.id, n.site_id, 90 + k, 'gates', 'gates', 0,
                'succeeded', 1, now(), 60, now(), CASE k WHEN 3 THEN timestamptz '2026-04-24' ELSE timestamptz '2026-01-05' END, $1::jsonb
         FROM nodes n, generate_series(0, 4) k",
    )
    .bind(&job)
    .execute(&server.app.pool)
    .await
    .unwrap();
    run(
        server,
        "INSERT INTO gate_runs (id, node_id, job_id, suite, verdict, fingerprint, finished_at)
         SELECT id, node_id, id, CASE visit WHEN 94 THEN 'burn ' ELSE 'smoke ' END || visit, CASE WHEN visit < 92 THEN 'pass' ELSE 'fail' END, 'f', finished_at FROM jobs WHERE visit >= 90",
    )
    .await;
    for statement in [
        "INSERT INTO gate_results (run_id, position, gate, verdict, result)
         SELECT r.id, 1, 'node.profile', 'pass', j.result #> '{results,0}' FROM gate_runs r JOIN jobs j ON j.id = r.job_id",
        "INSERT INTO jobs (id, node_id, site_id, visit, step, kind, epoch, state, attempt, not_before, timeout_s, created_at, finished_at)
         SELECT gen_random_uuid(), id, site_id, 80, 'gates', 'gates', 0, 'failed', 1, now(), 60, now(), timestamptz '2026-01-05' FROM nodes",
        "INSERT INTO job_logs (job_id, attempt, at, text) SELECT id, 1, now(), 'a line' FROM jobs WHERE visit >= 80",
        "INSERT INTO facts (node_id, source, observed_at, facts)
         SELECT n.id, f.source, f.at, '{}'::jsonb FROM nodes n,
             (VALUES ('installed', timestamptz '2026-01-01'), ('live', '2026-01-02'), ('live', '2026-01-03'), ('installed', '2026-01-04')) AS f (source, at)",
        "INSERT INTO console_chunks (node_id, id, at, text)
         SELECT n.id, c.id, c.at, 'text' FROM nodes n, (VALUES (100, timestamptz '2026-01-05'), (200, '2026-01-06')) AS c (id, at)",
    ] {
        run(server, statement).await;
    }
}

#[tokio::test]
async fn old_records_go_and_the_last_pass_and_held_nodes_stay() {
    let mut server = Server::start().await;
    let admin = server.admin().await;
    fleet::declare(&admin).await;
    declare_nodes(&admin, 2).await;
    store_records(&server).await;
    hold(&server, "n2").await;
    server.app.retention.facts_days = 30;
    let nothing = records::remove(&server.app).await.unwrap();
    assert_eq!(nothing, records::Removed::default());

    server.app.clock.advance(DAY * 110);
    let removed = records::remove(&server.app).await.unwrap();
    // The log of the failed job stays.
    let expected = records::Removed {
        log_lines: 4,
        runs: 2,
        facts: 1,
        chunks: 1,
    };
    assert_eq!(removed, expected);
    let again = records::remove(&server.app).await.unwrap();
    assert_eq!(again, records::Removed::default());

    // The last pass of the suite stays, whatever the version; so does the newest run of each suite.
    let kept: Vec<String> = sqlx::query_scalar(
        "SELECT n.name || ' ' || r.suite FROM gate_results g JOIN gate_runs r ON r.id = g.run_id JOIN nodes n ON n.id = r.node_id
         WHERE g.result #>> '{evidence,stdout}' = 'raw text' AND r.evidence_removed_at IS NULL ORDER BY 1",
    )
    .fetch_all(&server.app.pool)
    .await
    .unwrap();
    let expected = [
        "n1 burn 94",
        "n1 smoke 91",
        "n1 smoke 93",
        "n2 burn 94",
        "n2 smoke 90",
        "n2 smoke 91",
        "n2 smoke 92",
        "n2 smoke 93",
    ];
    assert_eq!(kept, expected);
    let facts: Vec<String> = sqlx::query_scalar(
        "SELECT f.source || ' ' || f.observed_at::date FROM facts f JOIN nodes n ON n.id = f.node_id WHERE n.name = 'n1' ORDER BY f.observed_at",
    )
    .fetch_all(&server.app.pool)
    .await
    .unwrap();
    assert_eq!(
        facts,
        [
            "installed 2026-01-01",
            "live 2026-01-03",
            "installed 2026-01-04"
        ]
    );

    // The second copy in the job goes too, and both still are results.
    let results: Vec<Value> = sqlx::query_scalar(
        "SELECT j.result FROM jobs j JOIN gate_runs r ON r.job_id = j.id WHERE r.evidence_removed_at IS NOT NULL",
    )
    .fetch_all(&server.app.pool)
    .await
    .unwrap();
    assert_eq!(results.len(), 2);
    for result in results {
        assert!(!result.to_string().contains("raw text"), "{result}");
        serde_json::from_value::<JobResult>(result).unwrap();
    }
    let reader = server.caller(Role::Admin).await;
    let listed = reader.get("/v1/nodes/n1/gate-runs").await.expect(200);
    assert!(listed.text.contains("removed: evidence is kept"));
    assert_eq!(listed.text.matches("8 of 8").count(), 5, "{}", listed.text);
}

#[tokio::test]
async fn a_node_under_a_legal_hold_is_not_deleted() {
    let server = Server::start().await;
    let admin = server.admin().await;
    fleet::declare(&admin).await;
    declare_nodes(&admin, 2).await;
    hold(&server, "n2").await;
    let removal = admin.expecting(1);
    removal.delete("/v1/nodes/n1").await.expect(204);
    let refused = removal.delete("/v1/nodes/n2").await;
    assert_eq!(refused.problem().1, "held", "{}", refused.text);
}

/// Stores four runs of pairs of the nodes n1 to n4: an old run, a run with passes only, a run with
/// a failure, and the newest run. Each run measures n1 with n2 and n3 with n4. The node n1 has a
/// further pair job, of a removed pool.
async fn store_pairs(server: &Server) {
    for statement in [
        "INSERT INTO operations (id, kind, state, actor, created_at, finished_at)
         SELECT ('00000000-0000-0000-0001-00000000000' || k)::uuid, 'run_pairs', 'succeeded', 'ada', now(), now() FROM generate_series(1, 4) k",
        "INSERT INTO pair_runs (id, pool_id, actor, suite, beyond, begun_at, deadline_at, ended_at, ended)
         SELECT o.id, p.id, 'ada', '{\"name\": \"pairs\", \"version\": \"1\"}', 0, timestamptz '2026-01-05', now(), timestamptz '2026-01-05', 'done'
         FROM operations o, objects p WHERE o.kind = 'run_pairs' AND p.kind = 'pool'",
        "INSERT INTO pair_ends (run_id, name, node_id, position, back_at)
         SELECT r.id, n.name, n.id, right(n.name, 1)::integer - 1, now() FROM pair_runs r, nodes n",
    ] {
        run(server, statement).await;
    }
    sqlx::query(
        "INSERT INTO jobs (id, node_id, site_id, visit, step, kind, epoch, state, attempt, not_before, timeout_s, created_at, finished_at, result)
         SELECT gen_random_uuid(), a.id, a.site_id, k, 'pair', 'pair', 0, 'succeeded', 1, now(), 60, now(), timestamptz '2026-01-05',
                jsonb_build_object('kind', 'paired', 'ways', jsonb_build_array(
                    jsonb_build_object('from', a.id, 'to', b.id, 'results', jsonb_build_array($1::jsonb)),
                    jsonb_build_object('from', b.id, 'to', a.id, 'results', jsonb_build_array($1::jsonb))))
         FROM generate_series(1, 5) k, nodes a JOIN nodes b ON right(b.name, 1)::integer = right(a.name, 1)::integer + 1
         WHERE a.name = 'n1' OR (a.name = 'n3' AND k < 5)",
    )
    .bind(gate_result())
    .execute(&server.app.pool)
    .await
    .unwrap();
    run(
        server,
        "INSERT INTO pair_trials (run_id, round, a, b, job_id, verdict, ways, begun_at, finished_at)
         SELECT r.id, 0, e.position, e.position + 1, j.id, CASE WHEN right(r.id::text, 1) IN ('1', '2') THEN 'pass' ELSE 'fail' END,
                j.result -> 'ways', now(), timestamptz '2026-01-05'
         FROM pair_runs r JOIN pair_ends e ON e.run_id = r.id AND e.position IN (0, 2)
         JOIN jobs j ON j.node_id = e.node_id AND j.kind = 'pair' AND j.visit = right(r.id::text, 1)::bigint",
    )
    .await;
}

#[tokio::test]
async fn old_evidence_of_pairs_goes_and_the_last_pass_and_held_nodes_stay() {
    let server = Server::start().await;
    let admin = server.admin().await;
    fleet::declare_pool(&admin).await;
    declare_nodes(&admin, 4).await;
    store_pairs(&server).await;
    hold(&server, "n4").await;
    assert_eq!(pairs::remove(&server.app).await.unwrap(), 0);
    server.app.clock.advance(DAY * 110);
    // The old run and the failed run, each without the pair of the held node, and the further job.
    assert_eq!(pairs::remove(&server.app).await.unwrap(), 3);
    assert_eq!(pairs::remove(&server.app).await.unwrap(), 0);

    let kept: Vec<String> = sqlx::query_scalar(
        "SELECT right(run_id::text, 1) || ' ' || a FROM pair_trials WHERE ways::text LIKE '%raw text%' ORDER BY 1",
    )
    .fetch_all(&server.app.pool)
    .await
    .unwrap();
    assert_eq!(kept, ["1 2", "2 0", "2 2", "3 2", "4 0", "4 2"]);
    let raw = "SELECT count(*) FROM jobs WHERE kind = 'pair' AND result::text LIKE '%raw text%'";
    assert_eq!(count(&server, raw).await, 6);
    // The rest still are results, with both directions and the measured values.
    let results: Vec<Value> = sqlx::query_scalar("SELECT result FROM jobs WHERE kind = 'pair'")
        .fetch_all(&server.app.pool)
        .await
        .unwrap();
    assert_eq!(results.len(), 9);
    for result in results {
        assert_eq!(result.to_string().matches("8 of 8").count(), 2);
        serde_json::from_value::<JobResult>(result).unwrap();
    }
    let ways: Vec<Value> = sqlx::query_scalar("SELECT ways FROM pair_trials")
        .fetch_all(&server.app.pool)
        .await
        .unwrap();
    for ways in ways {
        assert_eq!(
            serde_json::from_value::<Vec<PairWay>>(ways).unwrap().len(),
            2
        );
    }
}

/// Seals the events so far.
async fn seal(server: &Server, anchored: i64) -> i64 {
    tasks::seals::round(&server.app, anchored).await.unwrap()
}

/// A server with four seals, and a fifth 401 days later. Each of the nodes n1, n2 and n3 has a seal.
async fn aged() -> (Server, Caller) {
    let server = Server::start().await;
    let admin = server.admin().await;
    fleet::declare(&admin).await;
    let mut anchored = seal(&server, 0).await;
    for number in 1..4 {
        let path = format!("/v1/nodes/n{number}");
        admin.put(&path, &fleet::node(number)).await.expect(201);
        anchored = seal(&server, anchored).await;
    }
    server.app.clock.advance(DAY * 401);
    let admin = server.caller(Role::Admin).await;
    admin.put("/v1/nodes/n9", &fleet::node(9)).await.expect(201);
    assert_eq!(seal(&server, anchored).await, 5);
    (server, admin)
}

async fn remove_events(server: &Server) -> u64 {
    segments::remove(&server.app).await.unwrap()
}

async fn verify(server: &Server, has_exports: bool) -> Report {
    let anchors = audit::read_anchors(&server.app.anchors).unwrap();
    let folder = server.app.blobs.join(segments::FOLDER);
    let copies = Copies {
        anchors: &anchors,
        exports: has_exports.then_some(folder.as_path()),
    };
    let mut conn = server.app.pool.acquire().await.unwrap();
    audit::verify(&mut conn, copies).await.unwrap()
}

fn faults(report: &Report) -> Vec<Fault> {
    let findings = report.findings.iter();
    findings.map(|finding| finding.fault).collect()
}

#[tokio::test]
async fn old_events_go_by_segments_and_the_history_stays_provable() {
    let (server, _) = aged().await;
    let before = verify(&server, false).await;
    assert!(before.whole && before.removed_segments == 0, "{before:?}");
    let old = count(
        &server,
        "SELECT count(*) FROM events WHERE seq <= (SELECT seqs[cardinality(seqs)] FROM event_seals WHERE number = 4)",
    )
    .await;
    assert_eq!(i64::try_from(remove_events(&server).await).unwrap(), old);
    assert_eq!(remove_events(&server).await, 0, "the last seal is new");

    let without = verify(&server, false).await;
    assert!(without.whole, "{without:?}");
    assert_eq!(
        (
            without.removed_segments,
            without.removed_events,
            without.seals
        ),
        (1, old, 1)
    );
    // An anchor of the last removed seal, and of the seal that stays.
    assert_eq!((without.anchors, without.exports), (2, 0));
    let with = verify(&server, true).await;
    assert!(with.whole, "{with:?}");
    assert_eq!((with.anchors, with.exports), (5, 1));
    let told = "SELECT count(*) FROM events WHERE kind = 'audit.events_removed'";
    assert_eq!(count(&server, told).await, 1);
    // The newest seal stays at any age: the next seal continues from it.
    server.app.clock.advance(DAY * 401);
    assert_eq!(remove_events(&server).await, 0);

    // A changed, then a missing file.
    let folder = server.app.blobs.join(segments::FOLDER);
    let file = std::fs::read_dir(&folder).unwrap().next().unwrap().unwrap();
    let text = std::fs::read_to_string(file.path()).unwrap();
    std::fs::write(file.path(), text.replacen("n1", "n7", 1)).unwrap();
    assert_eq!(
        faults(&verify(&server, true).await)[0],
        Fault::ExportDiffers
    );
    std::fs::remove_file(file.path()).unwrap();
    assert_eq!(
        faults(&verify(&server, true).await)[0],
        Fault::ExportMissing
    );
    assert!(verify(&server, false).await.whole);

    // An event in the place of a removed event.
    run(
        &server,
        "INSERT INTO events (seq, id, at, actor, kind, summary) VALUES (2, gen_random_uuid(), now(), 'a', 'b', 'c')",
    )
    .await;
    assert_eq!(faults(&verify(&server, false).await), [Fault::EventAdded]);
}

#[tokio::test]
async fn only_removed_segments_lose_events_and_seals() {
    let (server, _) = aged().await;
    for statement in [
        "DELETE FROM events WHERE seq = 1",
        "DELETE FROM event_seals WHERE number = 1",
    ] {
        let refused = sqlx::query(statement).execute(&server.app.pool).await;
        assert!(refused.is_err(), "{statement}");
    }
    assert!(remove_events(&server).await > 0);
    for statement in [
        "DELETE FROM events WHERE seq = (SELECT max(seq) FROM events)",
        "DELETE FROM event_seals",
        "DELETE FROM removed_segments",
        "UPDATE removed_segments SET file = 'x'",
    ] {
        let refused = sqlx::query(statement).execute(&server.app.pool).await;
        assert!(refused.is_err(), "{statement}");
    }
}

#[tokio::test]
async fn a_removed_segment_at_the_end_is_a_truncated_history() {
    let (server, _) = aged().await;
    assert!(verify(&server, false).await.whole);
    for statement in [
        "INSERT INTO removed_segments
         SELECT number, number, seqs[1], seqs[cardinality(seqs)], cardinality(seqs), previous, hash, 'forged', hash, false, now()
         FROM event_seals WHERE number = 5",
        "DELETE FROM events WHERE seq >= (SELECT first_seq FROM removed_segments)",
        "DELETE FROM event_seals WHERE number = 5",
    ] {
        run(&server, statement).await;
    }
    let report = verify(&server, false).await;
    assert_eq!(faults(&report), [Fault::Truncated]);
}

#[tokio::test]
async fn a_changed_history_is_not_removed() {
    let (server, _) = aged().await;
    for statement in [
        "ALTER TABLE events DISABLE TRIGGER ALL",
        "UPDATE events SET actor = 'user:nobody' WHERE seq = 2",
        "ALTER TABLE events ENABLE TRIGGER ALL",
    ] {
        run(&server, statement).await;
    }
    assert!(segments::remove(&server.app).await.is_err());
    let report = verify(&server, true).await;
    assert_eq!(faults(&report), [Fault::EventChanged]);
    assert_eq!(report.removed_segments, 0);
}

#[tokio::test]
async fn events_of_a_held_node_stay_until_the_hold_ends() {
    let (server, _) = aged().await;
    let of_node =
        "SELECT count(*) FROM events e JOIN nodes n ON n.id = e.node_id WHERE n.name = 'n2'";
    let of_another =
        "SELECT count(*) FROM events e JOIN nodes n ON n.id = e.node_id WHERE n.name = 'n3'";
    let held = count(&server, of_node).await;
    assert!(held > 0 && count(&server, of_another).await > 0);
    hold(&server, "n2").await;
    assert!(remove_events(&server).await > 0);
    assert_eq!(count(&server, of_node).await, held);
    assert_eq!(count(&server, of_another).await, 0);
    let report = verify(&server, true).await;
    assert!(report.whole, "{report:?}");
    assert_eq!((report.removed_segments, report.exports), (2, 2));

    let node = find_node(&server, "n2").await;
    let mut conn = server.app.pool.acquire().await.unwrap();
    assert!(db::legal_holds::delete(&mut conn, node).await.unwrap());
    drop(conn);
    assert!(remove_events(&server).await > 0);
    assert_eq!(count(&server, of_node).await, 0);
    let report = verify(&server, true).await;
    assert!(report.whole, "{report:?}");
    assert_eq!(report.removed_segments, 3);
}

/// Whether the database knows an event shown by an agent.
async fn is_known(server: &Server, agent: AgentId, site: ObjectId, event: EventId) -> bool {
    let mut conn = server.app.pool.acquire().await.unwrap();
    let caller = db::agents::find_caller(&mut conn, agent, site, Some(event)).await;
    caller.unwrap().unwrap().known
}

#[tokio::test]
async fn an_event_that_an_agent_remembers_stays_known() {
    let server = Server::start().await;
    let admin = server.admin().await;
    fleet::declare(&admin).await;
    let body = json!({ "name": "a" });
    admin.post("/v1/sites/lab/agents", &body).await.expect(201);
    let (agent, site): (Uuid, Uuid) = sqlx::query_as("SELECT id, site_id FROM agents")
        .fetch_one(&server.app.pool)
        .await
        .unwrap();
    let (agent, site) = (AgentId(agent), ObjectId(site));
    let mut events = Vec::new();
    for kind in ["permit.redeemed", "act.started", "caution.entered", "test"] {
        let event = NewEvent::new(server.app.clock.now(), "muster", kind, "told".to_owned());
        let mut conn = server.app.pool.acquire().await.unwrap();
        events.push(db::events::insert_noted(&mut conn, event).await.unwrap());
    }
    seal(&server, 0).await;
    server.app.clock.advance(DAY * 401);
    let admin = server.caller(Role::Admin).await;
    admin.put("/v1/nodes/n9", &fleet::node(9)).await.expect(201);
    seal(&server, 1).await;
    assert!(remove_events(&server).await >= 4);
    let left = "SELECT count(*) FROM events WHERE summary = 'told'";
    assert_eq!(count(&server, left).await, 0);
    for (event, expected) in events.iter().zip([true, true, true, false]) {
        assert_eq!(is_known(&server, agent, site, *event).await, expected);
    }
    assert!(!is_known(&server, agent, site, EventId::new()).await);

    // An agent that has not called since keeps all marks. Later only the agent's own mark stays, and
    // the event of a settled caution.
    let caution = "INSERT INTO cautions (id, because, noticed_at, confirmed_at, confirmed_by) VALUES (gen_random_uuid(), 'told', now(), now(), 'ada')";
    run(&server, caution).await;
    sqlx::query("INSERT INTO caution_witnesses (caution_id, witness, heard, proved, seen_at, event_id) SELECT id, id, id, true, now(), $1 FROM cautions")
        .bind(events[2].0)
        .execute(&server.app.pool)
        .await
        .unwrap();
    let mut conn = server.app.pool.acquire().await.unwrap();
    let mut removed = db::segments::delete_old_marks(&mut conn, 100)
        .await
        .unwrap();
    assert_eq!(removed, 0);
    db::agents::set_shown_event(&mut conn, agent, events[1])
        .await
        .unwrap();
    run(
        &server,
        "UPDATE agents SET last_seen = timestamptz '2027-02-01'",
    )
    .await;
    removed = db::segments::delete_old_marks(&mut conn, 100)
        .await
        .unwrap();
    assert_eq!(removed, 1);
    for (event, expected) in events.iter().zip([false, true, true, false]) {
        assert_eq!(is_known(&server, agent, site, *event).await, expected);
    }
}

#[tokio::test]
async fn state_outlives_the_events_that_told_of_it() {
    let (server, admin) = aged().await;
    let mut conn = server.app.pool.acquire().await.unwrap();
    let now = server.app.clock.now();
    let adopted = NewEvent::new(now, "muster", "rows.adopted", "told".to_owned());
    db::events::insert(&mut conn, adopted).await.unwrap();
    let mut second = fleet::stack();
    second["spec"]["packages"]["chrony"] = json!("4.4-1");
    second["spec"]["version"] = json!("2");
    admin.put("/v1/stacks/base", &second).await.expect(200);
    // A server of the version before has written only the event.
    run(&server, "DELETE FROM stack_versions WHERE version = '2'").await;
    seal(&server, 5).await;
    server.app.clock.advance(DAY * 401);
    let admin = server.caller(Role::Admin).await;
    admin.put("/v1/nodes/n8", &fleet::node(8)).await.expect(201);
    seal(&server, 6).await;
    assert!(remove_events(&server).await > 0);
    let left = "SELECT count(*) FROM events WHERE kind = 'rows.adopted' OR detail ->> 'digest' IS NOT NULL";
    assert_eq!(count(&server, left).await, 0);

    assert!(db::row_seals::is_adoption_known(&mut conn).await.unwrap());
    let mut changed = fleet::stack();
    changed["spec"]["packages"]["chrony"] = json!("4.5-1");
    for version in ["1", "2"] {
        let mut other = changed.clone();
        if version == "2" {
            // From a third version, because a present version is refused without the record.
            let mut third = fleet::stack();
            third["spec"]["version"] = json!("3");
            admin.put("/v1/stacks/base", &third).await.expect(200);
        }
        other["spec"]["version"] = json!(version);
        let refused = admin.put("/v1/stacks/base", &other).await;
        assert_eq!(refused.problem(), (409, "immutable", ""));
        assert!(refused.text.contains("was published before as sha256:"));
    }
    admin
        .put("/v1/stacks/base", &fleet::stack())
        .await
        .expect(200);
    admin.put("/v1/stacks/base", &second).await.expect(200);
}
