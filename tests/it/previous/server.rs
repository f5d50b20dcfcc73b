//! A replica of the previous version on today's schema. A rolling upgrade migrates first, and
//! restarts replicas one after another. Until the restart, the old replica serves a database
//! written by today's migrations and today's server.

use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use muster_core::clock::Clock;
use muster_core::values::Digest;
use muster_server::schema;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use sqlx::PgPool;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};

use super::programs;
use crate::openapi::examples;
use crate::support::postgres;
use crate::support::server::Server;

/// Longer than any request of the test.
const TIMEOUT: Duration = Duration::from_secs(60);
/// The refusal of a server that finds an applied migration unknown to the server.
const NEWER: &str = "was previously applied but is missing in the resolved migrations";
/// Rows for tables left empty by the simulated fleet.
const ROWS: [&str; 34] = [
    "INSERT INTO sessions SELECT '\\x01', id, now(), now() + interval '1 day' FROM users LIMIT 1",
    "INSERT INTO cautions VALUES (gen_random_uuid(), 'an agent remembers more', now(), now(), 'ada', 'seen')",
    "INSERT INTO caution_witnesses SELECT c.id, gen_random_uuid(), s.id, NULL, NULL, true, now(), gen_random_uuid()
     FROM cautions c, objects s WHERE s.kind = 'site' LIMIT 1",
    "INSERT INTO break_glass VALUES (true, now(), now() + interval '1 hour', 'ada', 'the provider is away', 'seal')",
    "INSERT INTO scheduler_outs SELECT id, 'drained', 'a fan is loud', now(), now() FROM nodes WHERE name = 'n2'",
    "INSERT INTO scheduler_looks SELECT id, now() FROM objects WHERE kind = 'cluster' ON CONFLICT DO NOTHING",
    "INSERT INTO scheduler_jobs SELECT n.id, l.cluster_id, '[{\"ends\": null, \"id\": \"1\", \"user\": \"ada\", \"state\": \"RUNNING\"}]', 1
     FROM nodes n, scheduler_looks l WHERE n.name = 'n2'",
    "INSERT INTO due_rollouts SELECT pool_id, id, now() FROM pool_revisions ORDER BY number LIMIT 1",
    "INSERT INTO rollout_comparisons SELECT rollout_id, node_id, 'gpu.burn', 'gpu.flops', NULL, NULL, NULL, NULL, NULL, 'no_result_before'
     FROM rollout_nodes LIMIT 1",
    "INSERT INTO pool_shortages SELECT id, now() FROM objects WHERE kind = 'pool'",
    "INSERT INTO adoptions SELECT n.id, gen_random_uuid(), 'adopted', p.id, c.id, NULL, 'ada', now() FROM nodes n, objects p, objects c
     WHERE n.name = 'n3' AND p.kind = 'pool' AND c.kind = 'credential' AND c.name = 'root'",
    "INSERT INTO remains VALUES (gen_random_uuid(), gen_random_uuid(), 'n9', now(), false, NULL, 3, false, NULL)",
    "INSERT INTO remains_identifiers SELECT id, 'serial', 'SN-0009' FROM remains",
    "INSERT INTO remains_heirs SELECT r.id, n.id, now() FROM remains r, nodes n WHERE n.name = 'n3'",
    "INSERT INTO strangers SELECT id, site_id, now() FROM nodes WHERE name = 'n3'",
    "INSERT INTO stranger_minutes (site_id, began_at) SELECT id, now() FROM objects WHERE kind = 'site' LIMIT 1",
    "INSERT INTO row_seals VALUES (true, now(), now(), '\\x01') ON CONFLICT DO NOTHING",
    "INSERT INTO sign_in_delays SELECT id::text, '', 3, now() FROM users LIMIT 1",
    "INSERT INTO sign_in_failures VALUES (now(), '192.0.2.7', 'ada', 'wrong_password', 3)",
    "INSERT INTO former_suites SELECT id, spec FROM objects WHERE kind = 'suite' LIMIT 1",
    "INSERT INTO node_clocks SELECT id, 'ssh-ed25519 AAAA', 0, now() FROM nodes WHERE name = 'n2'",
    "INSERT INTO access_changes DEFAULT VALUES",
    "INSERT INTO stack_versions SELECT id, 'retention', 'sha256:0' FROM objects WHERE kind = 'suite' LIMIT 1",
    "INSERT INTO event_marks VALUES (gen_random_uuid(), now())",
    "INSERT INTO unused_blobs VALUES (decode(repeat('03', 32), 'hex'), now())",
    "INSERT INTO legal_holds SELECT id, 'a lawsuit', 'host:ada@db', now() FROM nodes WHERE name = 'n2'",
    "INSERT INTO removed_segments VALUES (1000000, 1000000, 1000000000, 1000000000, 1, decode(repeat('00', 32), 'hex'), decode(repeat('01', 32), 'hex'),
     'events-1.jsonl', decode(repeat('02', 32), 'hex'), false, now())",
    "INSERT INTO provider_sessions SELECT '\\x01', id, now() FROM users LIMIT 1",
    "INSERT INTO provider_logouts VALUES ('\\x01', now())",
    "INSERT INTO key_rotations VALUES ('permit', 'former', 'next', now())",
    "INSERT INTO key_holders VALUES (gen_random_uuid(), 'server-2', ARRAY['next', 'former'], now())",
    "INSERT INTO agent_keys SELECT id, 'next', NULL, now() FROM agents LIMIT 1 ON CONFLICT DO NOTHING",
    "INSERT INTO node_ssh_cas SELECT id, gen_random_uuid(), 'next', 'next', 'ssh-ed25519 AAAA' FROM nodes WHERE name = 'n2'",
    "INSERT INTO agent_authorities SELECT id, 'next', 'next' FROM agents LIMIT 1",
];

/// A replica of the previous version.
struct Replica {
    child: Child,
    url: String,
    http: reqwest::Client,
    token: String,
}

/// The result of a start.
enum Started {
    Serves(Replica),
    /// The log of the start.
    Refuses(String),
}

/// Returns a command of the previous version's `muster` for a database.
fn muster(database: &str, words: &[&str]) -> Command {
    let mut command = Command::new("setpriv");
    command
        .arg("--pdeathsig=KILL")
        .arg(programs::muster())
        .args(words)
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .env("MUSTER_DATABASE_URL", database)
        .stdin(Stdio::null())
        .kill_on_drop(true);
    command
}

/// Runs a command to the end and returns the output.
async fn printed(mut command: Command) -> String {
    let output = command.output().await.unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {said}");
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

impl Replica {
    /// Starts a replica, and waits until the replica serves or has ended.
    async fn start(database: &str, dir: &Path, token: &str) -> Started {
        let (data, key) = (
            dir.display().to_string(),
            dir.join("key").display().to_string(),
        );
        let listen = ["--listen", "127.0.0.1:0", "--agent-listen", "127.0.0.1:0"];
        let words = [
            &["server"],
            &listen[..],
            &["--data-dir", &data, "--key-file", &key],
        ]
        .concat();
        let mut command = muster(database, &words);
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let mut said = String::new();
        while let Some(line) = lines.next_line().await.unwrap() {
            if let Some(rest) = line.split(" listen=").nth(1) {
                let url = format!("http://{}", rest.split(' ').next().unwrap());
                // The rest of the log is read and dropped: a full pipe would stop the server.
                tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
                let http = reqwest::Client::builder()
                    .timeout(TIMEOUT)
                    .no_proxy()
                    .build();
                return Started::Serves(Self {
                    child,
                    url,
                    http: http.unwrap(),
                    token: token.to_owned(),
                });
            }
            said += &format!("{line}\n");
        }
        Started::Refuses(said)
    }

    async fn call(
        &self,
        method: reqwest::Method,
        path: &str,
        body: Option<&Value>,
    ) -> (u16, String) {
        let url = format!("{}{path}", self.url);
        let mut request = self.http.request(method, url).bearer_auth(&self.token);
        if let Some(body) = body {
            request = request.json(body);
        }
        let response = request
            .send()
            .await
            .unwrap_or_else(|error| panic!("{path}: {error:?}"));
        (response.status().as_u16(), response.text().await.unwrap())
    }

    /// Returns the answer to a GET. Any status except 200 fails the test.
    async fn get(&self, path: &str) -> String {
        let (status, text) = self.call(reqwest::Method::GET, path, None).await;
        assert_eq!(status, 200, "yesterday's server, {path}: {text}");
        text
    }

    fn signal(&self, signal: Signal) {
        let pid = self.child.id().expect("it runs");
        kill(Pid::from_raw(pid.try_into().unwrap()), signal).unwrap();
    }

    async fn stop(mut self) {
        self.signal(Signal::SIGTERM);
        self.child.wait().await.unwrap();
    }
}

/// Writes rows into every table, most rows by today's server. Returns the path parameters for the
/// reads.
async fn seed(pool: &PgPool) -> Vec<(&'static str, String)> {
    let clock = Clock::manual(Clock::System.now());
    let (mut world, named) = examples::lived_in(Server::on(pool.clone(), clock).await).await;
    world.ask("n1", "rotate-bmc").await.expect(202);
    world.settle().await;
    // A server of the previous version does not read the member.
    let default = json!({ "spec": { "max_unavailable": null } });
    world
        .admin
        .patch("/v1/pools/gpu", &default)
        .await
        .expect(200);
    let path = format!("/v1/blobs/sha256/{}", Digest::of(b"blob").hex());
    let put = world
        .admin
        .send(reqwest::Method::PUT, &path, b"blob".to_vec());
    assert!([200, 201].contains(&put.await.status));
    let keyed = world.admin.header("idempotency-key", "once");
    let token = json!({ "name": "keyed", "role": "viewer", "expires_in_s": 3600 });
    keyed.post("/v1/tokens", &token).await.expect(201);
    for row in ROWS {
        sqlx::query(row).execute(pool).await.unwrap();
    }
    let tables: Vec<String> = sqlx::query_scalar(
        "SELECT tablename::text FROM pg_tables WHERE schemaname = 'public' ORDER BY 1",
    )
    .fetch_all(pool)
    .await
    .unwrap();
    for table in tables {
        let query = format!("SELECT EXISTS (SELECT FROM {table})");
        let query = sqlx::query_scalar(sqlx::AssertSqlSafe(query));
        let rows: bool = query.fetch_one(pool).await.unwrap();
        assert!(
            rows,
            "{table} has no row: write one, by the server or into ROWS"
        );
    }
    named
}

/// Reads every list and object in the replica's own description, and the pages of the web console.
async fn read_all(replica: &Replica, named: &[(&'static str, String)]) {
    assert_eq!(replica.get("/readyz").await, "ready\n");
    let description: Value = serde_json::from_str(&replica.get("/openapi.json").await).unwrap();
    let reads = examples::reads(&description, named);
    assert!(reads.len() > 50, "{} reads", reads.len());
    for (_, path) in reads {
        let answer = replica.get(&path).await;
        let body: Value = serde_json::from_str(&answer).unwrap_or_default();
        let none = body["items"].as_array().is_some_and(Vec::is_empty);
        assert!(!none, "yesterday's server lists nothing: {path}");
    }
    let home = replica.get("/").await;
    let links = home
        .split("href=\"")
        .skip(1)
        .filter_map(|rest| rest.split('"').next());
    let links: Vec<&str> = links.filter(|link| link.starts_with('/')).collect();
    assert!(links.contains(&"/nodes"), "{links:?}");
    for link in links
        .into_iter()
        .chain(["/nodes/n1", "/pools/gpu", "/nodes/n1/console"])
    {
        replica.get(&link.replace("&amp;", "&")).await;
    }
}

/// Declares a rack and requests an action. The replica's engine must create a job.
async fn write(replica: &Replica, pool: &PgPool) {
    let rack = json!({ "spec": { "site": "lab", "units": 42, "power_budget_w": 20_000 } });
    let put = replica.call(reqwest::Method::PUT, "/v1/racks/r9", Some(&rack));
    let (status, text) = put.await;
    assert_eq!(status, 201, "{text}");
    let path = "/v1/nodes/n3/actions/rotate-bmc";
    let reason = json!({ "reason": "somebody left" });
    let (status, text) = replica
        .call(reqwest::Method::POST, path, Some(&reason))
        .await;
    assert_eq!(status, 202, "{text}");
    let jobs = "SELECT count(*) FROM jobs j JOIN nodes n ON n.id = j.node_id WHERE n.name = 'n3' AND step = 'rotate_bmc'";
    let begun = Instant::now();
    while sqlx::query_scalar::<_, i64>(jobs)
        .fetch_one(pool)
        .await
        .unwrap()
        == 0
    {
        assert!(begun.elapsed() < TIMEOUT, "yesterday's engine makes no job");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn yesterdays_server_goes_on_over_todays_migrations() {
    let pool = postgres::empty_database().await;
    let database = postgres::url(&pool);
    printed(muster(&database, &["migrate"])).await;
    let dir = tempfile::tempdir().unwrap();
    let key = dir.path().join("key");
    let mut options = std::fs::File::options();
    let file = options.write(true).create_new(true).mode(0o600).open(&key);
    // The master key of the test support's server.
    std::io::Write::write_all(&mut file.unwrap(), &[7; 32]).unwrap();
    let key = key.display().to_string();
    let token = printed(muster(&database, &["admin", "token", "--key-file", &key])).await;
    let Started::Serves(replica) = Replica::start(&database, dir.path(), &token).await else {
        panic!("yesterday's server does not start on its own schema")
    };
    let known = migrations(&pool).await;

    schema::migrate(&pool).await.unwrap();
    replica.signal(Signal::SIGSTOP);
    let named = seed(&pool).await;
    replica.signal(Signal::SIGCONT);
    read_all(&replica, &named).await;
    write(&replica, &pool).await;
    replica.stop().await;

    match Replica::start(&database, dir.path(), &token).await {
        Started::Serves(replica) => read_all(&replica, &named).await,
        Started::Refuses(said) => {
            let newer = migrations(&pool).await > known;
            assert!(
                newer && said.contains(NEWER),
                "yesterday's server does not start: {said}"
            );
        }
    }
}

/// Returns the number of successful migrations.
async fn migrations(pool: &PgPool) -> i64 {
    let query = "SELECT count(*) FROM _sqlx_migrations WHERE success";
    sqlx::query_scalar(query).fetch_one(pool).await.unwrap()
}
