//! Raw text of machines: consoles, logs and evidence. The roles that work on nodes read the text.
//! Viewers read verdicts and measured values, and keep the text for one version after an upgrade.

use jiff::SignedDuration;
use muster_api::tokens::Role;
use muster_server::db::kept;
use serde_json::json;

use super::two_sites;
use crate::support::server::{Caller, Reply, Server};

const MIGRATION: &str = include_str!("../../../migrations/0074_raw_verbs_and_vouching.sql");
const TEXT: &str = "raw-text-of-a-machine";

/// Stores a console, a log and a gate run of the node n1. Returns the paths of the raw text.
async fn store(server: &Server) -> [String; 5] {
    let evidence = json!({ "argv": ["cat"], "exit": 0, "stdout": TEXT, "stderr": TEXT, "versions": { "cat": "9.1" },
        "files": { "a.log": TEXT }, "kernel_log": TEXT });
    let measured = json!({ "metric": "gpu.count", "entity": "", "value": 8.0, "op": "==", "limit": 8.0, "unit": "count", "verdict": "pass" });
    let result = json!({ "gate": "node.profile", "title": "Profile", "stage": "node", "required": true, "verdict": "pass", "reason": "8 of 8",
        "measured": [measured], "started_at": "2026-01-05T08:00:00Z", "duration_ms": 1, "evidence": evidence });
    let job: uuid::Uuid = sqlx::query_scalar(
        "INSERT INTO jobs (id, node_id, site_id, operation_id, visit, step, kind, epoch, state, attempt, not_before, timeout_s, created_at)
         SELECT gen_random_uuid(), n.id, n.site_id, o.id, 90, 'gates', 'gates', 0, 'queued', 1, now(), 60, now()
         FROM nodes n JOIN operations o ON o.node_id = n.id WHERE o.kind = 'accept' AND n.name = 'n1' RETURNING id",
    )
    .fetch_one(&server.app.pool)
    .await
    .unwrap();
    for statement in [
        "INSERT INTO console_chunks (node_id, id, at, text) SELECT node_id, 1, now(), $2::jsonb #>> '{evidence,stdout}' FROM jobs WHERE id = $1",
        "INSERT INTO job_logs (job_id, attempt, at, text) VALUES ($1, 1, now(), $2::jsonb #>> '{evidence,stdout}')",
        "INSERT INTO gate_runs (id, node_id, job_id, suite, verdict, fingerprint, finished_at)
         SELECT gen_random_uuid(), node_id, id, 'smoke', 'pass', 'f', now() FROM jobs WHERE id = $1 AND $2::jsonb IS NOT NULL",
        "INSERT INTO gate_results (run_id, position, gate, verdict, result)
         SELECT id, 1, 'node.profile', 'pass', $2::jsonb FROM gate_runs WHERE job_id = $1",
    ] {
        let insert = sqlx::query(statement).bind(job).bind(&result);
        insert.execute(&server.app.pool).await.unwrap();
    }
    let operation: uuid::Uuid = sqlx::query_scalar("SELECT operation_id FROM jobs WHERE id = $1")
        .bind(job)
        .fetch_one(&server.app.pool)
        .await
        .unwrap();
    [
        "/v1/nodes/n1/console".to_owned(),
        "/nodes/n1/console".to_owned(),
        format!("/v1/operations/{operation}/log"),
        format!("/jobs/{job}/log"),
        "/v1/nodes/n1/rma".to_owned(),
    ]
}

async fn gate_runs(caller: &Caller) -> Reply {
    caller.get("/v1/nodes/n1/gate-runs").await.expect(200)
}

#[tokio::test]
async fn raw_text_is_for_those_who_work_on_nodes() {
    let server = Server::start().await;
    two_sites(&server).await;
    let paths = store(&server).await;
    for role in [
        Role::Admin,
        Role::Operator,
        Role::ReleaseOwner,
        Role::Automation,
    ] {
        let caller = server.caller(role).await;
        for path in &paths {
            // The archive is compressed.
            let reply = caller.get(path).await.expect(200);
            assert!(
                path.ends_with("/rma") || reply.text.contains(TEXT),
                "{path}"
            );
        }
        let runs = gate_runs(&caller).await;
        assert_eq!(runs.body["items"][0]["evidence_hidden"], json!(null));
        assert_eq!(runs.text.matches(TEXT).count(), 4, "{role:?}");
        let page = caller.get("/nodes/n1").await.expect(200);
        assert!(page.text.contains(TEXT) && page.text.contains("Open the console"));
        assert!(page.text.contains("Open the log"), "{role:?}");
    }
    let viewer = server.caller(Role::Viewer).await;
    for path in &paths {
        let refused = viewer.get(path).await.expect(403);
        assert!(!refused.text.contains(TEXT), "{path}");
    }
    // Verdicts and measured values stay readable.
    let runs = gate_runs(&viewer).await;
    let run = &runs.body["items"][0];
    assert!(!runs.text.contains(TEXT), "{}", runs.text);
    assert_eq!(run["evidence_hidden"], true);
    let result = &run["results"][0];
    assert_eq!(
        (&result["verdict"], &result["reason"]),
        (&json!("pass"), &json!("8 of 8"))
    );
    assert_eq!(result["measured"][0]["value"], 8.0);
    assert_eq!(result["evidence"]["versions"]["cat"], "9.1");
    let page = viewer.get("/nodes/n1").await.expect(200);
    for hidden in [TEXT, "Open the console", "Open the log", "RMA bundle"] {
        assert!(!page.text.contains(hidden), "{hidden}");
    }
    let operation = paths[2].replace("/v1", "").replace("/log", "");
    let steps = viewer.get(&operation).await.expect(200);
    assert!(steps.text.contains("Logs are hidden") && !steps.text.contains("Open the log"));
    assert!(page.text.contains("<code>node.console</code>"));
    assert!(page.text.contains("<code>node.evidence</code>"));
}

#[tokio::test]
async fn viewers_of_the_version_before_keep_the_text_with_one_warning_a_day() {
    let server = Server::start().await;
    let admin = two_sites(&server).await;
    let paths = store(&server).await;
    let binding = json!({ "spec": { "subject": "group:watchers", "role": "viewer" } });
    let path = "/v1/role_bindings/watchers";
    admin.put(path, &binding).await.expect(201);
    let old = server.caller(Role::Viewer).await;
    let updates = MIGRATION.split(';').map(str::trim);
    for update in updates.filter(|statement| statement.contains("UPDATE")) {
        sqlx::query(update).execute(&server.app.pool).await.unwrap();
    }
    server.seal_rows().await;
    let new = server.caller(Role::Viewer).await;
    let warnings = async || -> i64 {
        sqlx::query_scalar("SELECT count(*) FROM events WHERE kind = 'role.kept_verb_used'")
            .fetch_one(&server.app.pool)
            .await
            .unwrap()
    };
    for path in &paths {
        old.get(path).await.expect(200);
        new.get(path).await.expect(403);
    }
    assert_eq!(gate_runs(&old).await.text.matches(TEXT).count(), 4);
    assert_eq!(warnings().await, 1, "one a day");
    server.app.clock.advance(SignedDuration::from_mins(30));
    old.get("/v1/nodes/n1").await.expect(200);
    assert_eq!(warnings().await, 1, "no raw text");
    // No other right comes with the mark.
    let site = json!({ "spec": {} });
    old.put("/v1/sites/other", &site).await.expect(403);
    let mut conn = server.app.pool.acquire().await.unwrap();
    let now = server.app.clock.now();
    let tokens = kept::list_tokens(&mut conn, now).await.unwrap();
    assert_eq!((tokens.len(), tokens[0].role), (1, Role::Viewer));
    assert!(tokens[0].lost_verbs_used_at.is_some());
    let bindings = kept::list_bindings(&mut conn).await.unwrap();
    assert_eq!(bindings[0].subject, "group:watchers");
}
