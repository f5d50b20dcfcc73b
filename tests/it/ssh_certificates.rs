//! SSH certificates of orders: a real sshd accepts a certificate in time and from its source, and
//! refuses the others.

use std::io::{BufRead as _, BufReader};
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::{SignedDuration, Timestamp};
use muster_agent::ssh::{Session, SshError, krl};
use muster_agent::work::client::server::SeenOnNode;
use muster_core::clock::Clock;
use muster_core::ids::NodeId;
use muster_core::wire::job::{Job, JobSpec};
use muster_core::wire::login::Login;
use muster_core::wire::node::{Failure, FailureCode};
use muster_core::wire::result::Outcome;
use muster_server::app::App;
use muster_server::db::ssh_certificates;
use muster_server::keys::ssh::{self, Grant, NodeClock, SignedKey, Validity};
use muster_server::tasks::certificates;
use serde_json::{Value, json};

use crate::simulated::World;
use crate::support::server::Server;

const SSHD: &str = "/usr/sbin/sshd";
const PRINCIPAL: &str = "muster:0197b0f2-9a3c-7000-8000-000000000000:1";
const SOON: Duration = Duration::from_secs(20);
/// Attempts to find a free port. Another process can take the port before sshd does.
const PORT_TRIES: usize = 5;
const DAY: SignedDuration = SignedDuration::from_hours(24);
const TWO_HOURS_S: u64 = 2 * 60 * 60;

/// A node's sshd, with the configuration that an image gets, for one refused login or two: an sshd
/// makes a source with more failures wait.
struct Node {
    dir: tempfile::TempDir,
    port: u16,
    host_key: String,
    child: Child,
}

impl Node {
    fn start(user_ca: &str) -> Self {
        assert!(
            Path::new(SSHD).exists(),
            "these tests need {SSHD} (Debian: openssh-server)"
        );
        std::fs::create_dir_all("/run/sshd").unwrap();
        let dir = tempfile::tempdir().unwrap();
        std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        let made = Command::new("ssh-keygen")
            .args(["-q", "-t", "ed25519", "-N", "", "-C", "", "-f"])
            .arg(dir.path().join("host_key"))
            .status()
            .unwrap();
        assert!(made.success());
        let line = std::fs::read_to_string(dir.path().join("host_key.pub")).unwrap();
        let words: Vec<&str> = line.split_whitespace().take(2).collect();
        std::fs::write(dir.path().join("user_ca.pub"), format!("{user_ca}\n")).unwrap();
        std::fs::write(dir.path().join("principals"), format!("{PRINCIPAL}\n")).unwrap();
        revoke(dir.path(), &[]);
        let (child, port) = (0..PORT_TRIES)
            .find_map(|_| listen(dir.path()))
            .expect("sshd finds a free port");
        Self {
            host_key: words.join(" "),
            dir,
            port,
            child,
        }
    }

    /// Logs in with a certificate of the server.
    async fn log_in(
        &self,
        app: &App,
        validity: Validity,
        sources: &[&str],
    ) -> Result<(), SshError> {
        let sources: Vec<_> = sources.iter().map(|text| text.parse().unwrap()).collect();
        let grant = Grant {
            principal: PRINCIPAL,
            key_id: "node n1 job j attempt 1",
            validity,
            sources: &sources,
        };
        let mut conn = app.pool.acquire().await.unwrap();
        let ca = app.keys.open_user_cas(&mut conn).await.unwrap().current;
        drop(conn);
        self.log_in_with(&ssh::sign(&ca, &grant).unwrap()).await
    }

    async fn log_in_with(&self, signed: &SignedKey) -> Result<(), SshError> {
        let login = Login {
            address: Ipv4Addr::LOCALHOST,
            port: self.port,
            host_key: self.host_key.clone(),
            user_key: signed.key.clone(),
        };
        Session::connect(&login, SOON).await.map(drop)
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _gone_already = self.child.kill();
        let _status = self.child.wait();
    }
}

/// Replaces the list of revoked serials of a node.
fn revoke(dir: &Path, serials: &[i64]) {
    let serials: Vec<u64> = serials.iter().map(|serial| serial.unsigned_abs()).collect();
    let list = krl::encode(&serials, Timestamp::UNIX_EPOCH);
    std::fs::write(dir.join("revoked.new"), list).unwrap();
    std::fs::rename(dir.join("revoked.new"), dir.join("revoked")).unwrap();
}

fn listen(dir: &Path) -> Option<(Child, u16)> {
    let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = free.local_addr().unwrap().port();
    drop(free);
    let here = dir.display();
    let config = format!(
        "Port {port}\nListenAddress 127.0.0.1\nHostKey {here}/host_key\nTrustedUserCAKeys {here}/user_ca.pub\n\
         AuthorizedPrincipalsFile {here}/principals\nRevokedKeys {here}/revoked\nAuthorizedKeysFile none\nPasswordAuthentication no\n\
         KbdInteractiveAuthentication no\nUsePAM no\nPidFile none\nStrictModes no\nPermitRootLogin prohibit-password\n\
         ForceCommand /bin/true\n"
    );
    std::fs::write(dir.join("sshd_config"), config).unwrap();
    let mut child = Command::new(SSHD)
        .args(["-D", "-e", "-f"])
        .arg(dir.join("sshd_config"))
        .stdin(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    while stderr.read_line(&mut line).is_ok_and(|read| read > 0) {
        if line.contains("Server listening") {
            // Later messages are read and dropped, so that sshd never blocks on a full pipe.
            std::thread::spawn(move || std::io::copy(&mut stderr, &mut std::io::sink()));
            return Some((child, port));
        }
        line.clear();
    }
    let _status = child.wait();
    None
}

/// A server, and an sshd that trusts the server's CA.
async fn server_and_node() -> (Server, Node) {
    let server = Server::start().await;
    let mut conn = server.app.pool.acquire().await.unwrap();
    let cas = server.app.keys.open_user_cas(&mut conn).await.unwrap();
    drop(conn);
    let node = Node::start(&cas.lines().unwrap());
    (server, node)
}

fn is_refused(login: &Result<(), SshError>) -> bool {
    matches!(login, Err(SshError::AuthRefused(_)))
}

fn validity(clock: NodeClock, now: Timestamp) -> Validity {
    Validity::of(clock, now, TWO_HOURS_S)
}

#[tokio::test]
async fn a_real_sshd_refuses_a_certificate_that_has_ended() {
    let (server, node) = server_and_node().await;
    let now = Clock::System.now();
    // The job has run for two hours, and the certificate has its last hour.
    let late = now - SignedDuration::from_mins(150);
    let login = node
        .log_in(&server.app, validity(NodeClock::Set, late), &[])
        .await;
    assert_eq!(login, Ok(()));
    let over = now - SignedDuration::from_mins(190);
    let login = node
        .log_in(&server.app, validity(NodeClock::Set, over), &[])
        .await;
    assert!(is_refused(&login), "{login:?}");
}

#[tokio::test]
async fn a_real_sshd_refuses_a_certificate_from_another_source() {
    let (server, node) = server_and_node().await;
    let valid = validity(NodeClock::Set, Clock::System.now());
    // The network may be written with the bits of a host.
    for sources in [&["127.0.0.5/8"][..], &["10.99.0.0/24", "127.0.0.1/32"][..]] {
        let login = node.log_in(&server.app, valid, sources).await;
        assert_eq!(login, Ok(()), "{sources:?}");
    }
    let login = node.log_in(&server.app, valid, &["10.99.0.0/24"]).await;
    assert!(is_refused(&login), "{login:?}");
}

#[tokio::test]
async fn a_node_with_a_wrong_clock_accepts_the_certificate_made_for_the_clock() {
    let day_s = DAY.as_secs();
    for (behind, offset_s) in [(DAY, day_s), (-DAY, -day_s)] {
        let (server, node) = server_and_node().await;
        // The server's time is a day away from the time of the node.
        let now = Clock::System.now() - behind;
        for clock in [NodeClock::Seen { offset_s }, NodeClock::Unknown] {
            let login = node.log_in(&server.app, validity(clock, now), &[]).await;
            assert_eq!(login, Ok(()), "{clock:?}");
        }
        let right = NodeClock::Seen { offset_s: 0 };
        let login = node.log_in(&server.app, validity(right, now), &[]).await;
        // A clock that is behind refuses no certificate: each begins in 1970.
        assert_eq!(is_refused(&login), offset_s > 0, "{login:?}");
    }
}

/// The ends of the certificates in the order of an attempt, in seconds since the epoch.
async fn ends_of(world: &World, job: &Job) -> Vec<Option<i64>> {
    let query = "SELECT ends_at FROM ssh_certificates WHERE job_id = $1 AND attempt = $2 ORDER BY ends_at NULLS LAST";
    let ends: Vec<Option<jiff_sqlx::Timestamp>> = sqlx::query_scalar(query)
        .bind(job.id.0)
        .bind(job.attempt)
        .fetch_all(&world.server.app.pool)
        .await
        .unwrap();
    let second = |at: jiff_sqlx::Timestamp| at.to_jiff().as_second();
    ends.into_iter().map(|at| at.map(second)).collect()
}

/// The member of the latest event of a kind and step.
async fn told(world: &World, kind: &str, step: &str) -> Option<String> {
    let query = "SELECT detail ->> 'ssh_certificate_ends' FROM events WHERE kind = $1 AND detail ->> 'step' = $2 ORDER BY seq DESC LIMIT 1";
    sqlx::query_scalar(query)
        .bind(kind)
        .bind(step)
        .fetch_one(&world.server.app.pool)
        .await
        .unwrap()
}

#[tokio::test]
async fn an_order_ends_with_its_job_and_the_removal_of_the_agent_names_it() {
    let mut world = World::start(1).await;
    let job = world.until_leased("n1", "boot_live").await;
    let now = world.server.app.clock.now();
    let end = now.as_second() + i64::try_from(job.timeout_s).unwrap() + 3600;
    assert_eq!(ends_of(&world, &job).await, [Some(end)]);
    world
        .admin
        .header("if-match", "*")
        .delete("/v1/sites/lab/agents/first")
        .await
        .expect(204);
    let query = "SELECT detail -> 'ssh_certificates' FROM events WHERE kind = 'agent.removed'";
    let named: Value = sqlx::query_scalar(query)
        .fetch_one(&world.server.app.pool)
        .await
        .unwrap();
    assert_eq!(named[0]["node"], "n1", "{named}");
    assert_eq!(named.as_array().unwrap().len(), 1, "{named}");
    let serial: i64 = named[0]["serial"].as_str().unwrap().parse().unwrap();
    assert!(serial > 0);
    let ended: Timestamp = named[0]["ends_at"].as_str().unwrap().parse().unwrap();
    assert_eq!(ended.as_second(), end);
    // The row goes after the end.
    let forget = async || certificates::forget_ended(&world.server.app).await.unwrap();
    assert_eq!(forget().await, 0);
    world.advance(2 * 3600);
    assert_eq!(forget().await, 1);
    // Without an end, the row of a revoked certificate stays: a later list must have its serial.
    let endless = "INSERT INTO ssh_certificates (serial, job_id, attempt, node_id, issued_at, revoked_at)
        SELECT given, gen_random_uuid(), 1, id, $1::timestamptz, CASE given WHEN 1 THEN $1::timestamptz END
        FROM nodes, generate_series(1, 2) AS given WHERE name = 'n1'";
    let pool = &world.server.app.pool;
    sqlx::query(endless)
        .bind(jiff_sqlx::Timestamp::from(now))
        .execute(pool)
        .await
        .unwrap();
    world.advance(401 * 24 * 3600);
    assert_eq!(forget().await, 1);
    assert_eq!(list_serials(&world).await, [1]);
}

#[tokio::test]
async fn an_installed_system_gets_an_end_after_its_clock_was_reported() {
    let mut world = World::start(1).await;
    world.settle().await;
    world.claim("n1").await.expect(201);
    let boot = world.until_leased("n1", "boot_disk").await;
    let ends = ends_of(&world, &boot).await;
    assert_eq!(
        ends.iter().filter(|end| end.is_none()).count(),
        1,
        "{ends:?}"
    );
    world.agent.work(&boot).await.unwrap();
    let said = told(&world, "step.succeeded", "boot_disk").await;
    assert_eq!(said.as_deref(), Some("never"));
    assert_eq!(told(&world, "step.succeeded", "boot_live").await, None);

    let agent = world.client_at(world.listen().await);
    let job = world.until_leased("n1", "converge").await;
    assert_eq!(ends_of(&world, &job).await, [None]);
    let failed = |failure| Outcome::Failed { failure };
    let outcome = failed(Failure::retryable(FailureCode::Failed, "a mirror is away"));
    let seen = SeenOnNode {
        clock_ms: Some(3_600_000),
        ..SeenOnNode::default()
    };
    agent
        .report_outcome(job.id, job.attempt, &outcome, seen)
        .await
        .unwrap();
    let wrong: i64 = sqlx::query_scalar(
        "SELECT count(*) FROM events WHERE kind = 'node.clock_wrong' AND summary LIKE 'the clock is 3600 s ahead; set it by NTP%'",
    )
    .fetch_one(&world.server.app.pool)
    .await
    .unwrap();
    assert_eq!(wrong, 1);

    let job = world.until_leased("n1", "converge").await;
    let now = world.server.app.clock.now().as_second();
    let timeout = i64::try_from(job.timeout_s).unwrap();
    let wide = now + 3600 + timeout + 3600;
    assert_eq!(ends_of(&world, &job).await, [Some(wide)]);
    // The clock changed since the report: the refusal is retried, with a certificate for any clock.
    let refused = failed(Failure::fatal(
        FailureCode::SshAuthRefused,
        "refused for root",
    ));
    agent
        .report_outcome(job.id, job.attempt, &refused, SeenOnNode::default())
        .await
        .unwrap();
    let job = world.until_leased("n1", "converge").await;
    assert_eq!(ends_of(&world, &job).await, [None]);
}

#[tokio::test]
async fn a_wrong_clock_and_its_correction_are_each_an_event() {
    let mut world = World::start(1).await;
    world.settle().await;
    world.claim("n1").await.expect(201);
    let failure = Failure::retryable(FailureCode::Failed, "a mirror is away");
    let outcome = Outcome::Failed { failure };
    let mut counts = Vec::new();
    for offset_ms in [3_600_000, 0] {
        let job = world.until_leased("n1", "converge").await;
        let agent = world.client_at(world.listen().await);
        let seen = SeenOnNode {
            clock_ms: Some(offset_ms),
            ..SeenOnNode::default()
        };
        agent
            .report_outcome(job.id, job.attempt, &outcome, seen)
            .await
            .unwrap();
        for kind in ["node.clock_wrong", "node.clock_restored"] {
            let query = "SELECT count(*) FROM events WHERE kind = $1";
            let count: i64 = sqlx::query_scalar(query)
                .bind(kind)
                .fetch_one(&world.server.app.pool)
                .await
                .unwrap();
            counts.push(count);
        }
    }
    assert_eq!(counts, [1, 0, 1, 1]);
}

#[tokio::test]
async fn a_live_image_that_refuses_a_certificate_gets_one_without_an_end() {
    let mut world = World::start(1).await;
    let agent = world.client_at(world.listen().await);
    let job = world.until_leased("n1", "inventory").await;
    let ends = ends_of(&world, &job).await;
    assert!(matches!(ends[..], [Some(_)]), "{ends:?}");
    let failure = Failure::fatal(FailureCode::SshAuthRefused, "refused for root");
    agent
        .report_outcome(
            job.id,
            job.attempt,
            &Outcome::Failed { failure },
            SeenOnNode::default(),
        )
        .await
        .unwrap();
    let job = world.until_leased("n1", "inventory").await;
    assert_eq!(ends_of(&world, &job).await, [None]);
}

#[tokio::test]
async fn a_real_sshd_refuses_the_revoked_serial_of_an_order_and_no_other() {
    let (server, node) = server_and_node().await;
    let grant = Grant {
        principal: PRINCIPAL,
        key_id: "node n1 job j attempt 1",
        validity: validity(NodeClock::Unknown, Clock::System.now()),
        sources: &[],
    };
    let mut conn = server.app.pool.acquire().await.unwrap();
    let ca = server
        .app
        .keys
        .open_user_cas(&mut conn)
        .await
        .unwrap()
        .current;
    drop(conn);
    let certify = || ssh::sign(&ca, &grant).unwrap();
    let (kept, stolen) = (certify(), certify());
    for signed in [&kept, &stolen] {
        assert_eq!(node.log_in_with(signed).await, Ok(()));
    }
    revoke(node.dir.path(), &[stolen.serial]);
    let login = node.log_in_with(&stolen).await;
    assert!(is_refused(&login), "{login:?}");
    assert_eq!(node.log_in_with(&kept).await, Ok(()));
}

/// The open certificates of the world, by serial.
async fn list_serials(world: &World) -> Vec<u64> {
    let query =
        "SELECT serial FROM ssh_certificates WHERE ends_at IS NULL OR ends_at > $1 ORDER BY serial";
    let serials: Vec<i64> = sqlx::query_scalar(query)
        .bind(jiff_sqlx::Timestamp::from(world.server.app.clock.now()))
        .fetch_all(&world.server.app.pool)
        .await
        .unwrap();
    serials.into_iter().map(i64::unsigned_abs).collect()
}

/// The number of nodes that accept revoked certificates, in the latest event of a kind.
async fn accepting(world: &World, kind: &str) -> Option<i64> {
    let query = "SELECT (detail ->> 'nodes_accepting')::bigint FROM events WHERE kind = $1 ORDER BY seq DESC LIMIT 1";
    sqlx::query_scalar(query)
        .bind(kind)
        .fetch_one(&world.server.app.pool)
        .await
        .unwrap()
}

#[tokio::test]
async fn certificates_of_a_removed_agent_are_revoked_until_the_node_refuses() {
    let mut world = World::start(1).await;
    let agent = world.client_at(world.listen().await);
    world.settle().await;
    world.claim("n1").await.expect(201);
    let job = world.until_leased("n1", "converge").await;
    assert_eq!(job.revoked_keys, None, "the agent is there");
    let revoked = list_serials(&world).await;
    assert!(!revoked.is_empty());
    // The orders were those of another agent, which is removed.
    let path = "/v1/sites/lab/agents";
    let second = json!({ "name": "second" });
    world.admin.post(path, &second).await.expect(201);
    let move_all =
        "UPDATE ssh_certificates SET agent_id = (SELECT id FROM agents WHERE name = 'second')";
    let pool = world.server.app.pool.clone();
    sqlx::query(move_all).execute(&pool).await.unwrap();
    world
        .admin
        .header("if-match", "*")
        .delete("/v1/sites/lab/agents/second")
        .await
        .expect(204);
    assert_eq!(accepting(&world, "agent.removed").await, Some(1));
    let again = Outcome::Failed {
        failure: Failure::retryable(FailureCode::Failed, "a mirror is away"),
    };
    agent
        .report_outcome(job.id, job.attempt, &again, SeenOnNode::default())
        .await
        .unwrap();
    let job = world.until_leased("n1", "converge").await;
    let list = job.revoked_keys.unwrap();
    let mut listed = list.serials;
    listed.sort_unstable();
    assert_eq!(
        listed, revoked,
        "the certificate of this order is not listed"
    );
    assert_eq!(list.installed, world.value("n1", "os_host_key").await);
    let seen = SeenOnNode {
        keys_are_revoked: true,
        ..SeenOnNode::default()
    };
    agent
        .report_outcome(job.id, job.attempt, &again, seen)
        .await
        .unwrap();
    assert_eq!(accepting(&world, "node.keys_revoked").await, Some(0));
    let job = world.until_leased("n1", "converge").await;
    assert_eq!(job.revoked_keys, None, "the node has the list");
    // Another installation has another host key, and no list. What has ended is not listed.
    let reinstalled = "UPDATE ssh_certificates SET held_host_key = 'ssh-ed25519 OLD' WHERE revoked_at IS NOT NULL";
    sqlx::query(reinstalled).execute(&pool).await.unwrap();
    assert_eq!(count_listed(&world, job.node).await, (1, revoked.len()));
    let end = "UPDATE ssh_certificates SET ends_at = $1";
    let past = jiff_sqlx::Timestamp::from(world.server.app.clock.now());
    sqlx::query(end).bind(past).execute(&pool).await.unwrap();
    assert_eq!(count_listed(&world, job.node).await, (0, 0));
}

/// The number of nodes that accept revoked certificates, and of revoked certificates of a node.
async fn count_listed(world: &World, node: NodeId) -> (i64, usize) {
    let app = &world.server.app;
    let (mut conn, now) = (app.pool.acquire().await.unwrap(), app.clock.now());
    let accepting = ssh_certificates::count_accepting(&mut conn, now).await;
    let listed = ssh_certificates::list_revoked(&mut conn, node, now, 100).await;
    (accepting.unwrap(), listed.unwrap().len())
}

/// Returns whether the order's certificate names sources.
fn names_sources(job: &Job) -> bool {
    let JobSpec::BootLive(boot) = &job.spec else {
        panic!("{:?}", job.spec)
    };
    let encoded = boot.user_key.certificate.split_whitespace().nth(1).unwrap();
    let bytes = STANDARD.decode(encoded).unwrap();
    let option = b"source-address";
    bytes.windows(option.len()).any(|window| window == option)
}

#[tokio::test]
async fn a_site_says_from_where_its_agents_log_in() {
    let mut free = World::start(1).await;
    assert!(!names_sources(&free.until_leased("n1", "boot_live").await));
    let mut bound = World::declare(1, |path, mut body| {
        if path == "/v1/sites/lab" {
            body["spec"]["ssh_sources"] = json!(["10.77.0.0/24", "10.99.0.7/32"]);
        }
        body
    })
    .await;
    assert!(names_sources(&bound.until_leased("n1", "boot_live").await));
    let sources = |count: u8| {
        let networks: Vec<String> = (0..count).map(|n| format!("10.99.{n}.0/24")).collect();
        json!({ "spec": { "ssh_sources": networks } })
    };
    let path = "/v1/sites/lab";
    bound.admin.put(path, &sources(16)).await.expect(200);
    let refused = bound.admin.put(path, &sources(17)).await;
    let (status, _, pointer) = refused.problem();
    assert_eq!((status, pointer), (422, "/spec/ssh_sources"));
    let word = json!({ "spec": { "ssh_sources": ["the office"] } });
    let refused = bound.admin.put(path, &word).await;
    assert!((400..500).contains(&refused.status), "{refused:?}");
}
