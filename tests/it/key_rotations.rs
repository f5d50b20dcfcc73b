//! Rotations of the server's keys: two keys at a time, crashes in the middle, and the refusals of an
//! early end.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::{SignedDuration, Timestamp};
use muster_agent::work::client::server::SeenOnNode;
use muster_core::ids::EventId;
use muster_core::values::Digest;
use muster_core::wire::job::{Job, JobSpec};
use muster_core::wire::node::{Failure, FailureCode};
use muster_core::wire::orders;
use muster_core::wire::result::Outcome;
use muster_lab::simulated::agent::IMMORTAL;
use muster_server::db;
use muster_server::db::bmc_passwords::{Account, Prepared};
use muster_server::intents::rotations::events::Act;
use muster_server::intents::rotations::{master, report, signing};
use muster_server::keys::rings::{RingKey, ca_line};
use muster_server::keys::{Keys, MasterKey, place};
use muster_server::tasks::keys::{Replica, follow};
use serde_json::{Value, json};

use crate::simulated::World;
use crate::support::server::{Caller, Server};

const FORMER: [u8; 32] = [7; 32];
const NEXT: [u8; 32] = [8; 32];

fn former() -> MasterKey {
    MasterKey::from_bytes(&FORMER)
}

fn next() -> MasterKey {
    MasterKey::from_bytes(&NEXT)
}

fn both() -> MasterKey {
    next().holding(former())
}

/// A further replica on the same database.
async fn start_replica(server: &Server, key: MasterKey) -> Server {
    let (pool, clock) = (server.app.pool.clone(), server.app.clock.clone());
    Server::holding(pool, clock, None, key).await
}

/// The refusal of a start with a key; `None` for a server that starts.
async fn refusal(server: &Server, key: MasterKey) -> Option<String> {
    let loaded = Keys::load(key, &server.app.pool, &server.app.clock).await;
    loaded.err().map(|error| format!("{error:#}"))
}

/// An act of an administrator, as a process of its own.
struct Host<'a> {
    server: &'a Server,
    keys: Keys,
}

impl<'a> Host<'a> {
    async fn open(server: &'a Server) -> Self {
        let keys = Keys::load(both(), &server.app.pool, &server.app.clock).await;
        Self {
            server,
            keys: keys.unwrap(),
        }
    }

    fn act(&self, later: SignedDuration) -> Act<'static> {
        Act {
            actor: "host:ada@server-1",
            now: self.server.app.clock.now() + later,
        }
    }

    async fn begin(&self) -> Result<bool, String> {
        let mut tx = self.server.app.pool.begin().await.unwrap();
        let act = self.act(SignedDuration::ZERO);
        let begun = master::begin(&mut tx, &self.keys.master, act).await;
        let begun = begun.map_err(|error| error.to_string())?;
        tx.commit().await.unwrap();
        Ok(begun)
    }

    async fn finish(&self, later: SignedDuration) -> Result<String, String> {
        let mut tx = self.server.app.pool.begin().await.unwrap();
        let ended = master::finish(&mut tx, &self.keys.master, self.act(later)).await;
        let ended = ended.map_err(|error| error.to_string())?;
        tx.commit().await.unwrap();
        Ok(ended)
    }

    /// The holders of the former key, as `muster admin keys` prints them.
    async fn needs(&self) -> Vec<String> {
        let mut conn = self.server.app.pool.acquire().await.unwrap();
        let now = self.server.app.clock.now();
        let rotations = report::list_rotations(&mut conn, now).await;
        rotations.unwrap().remove(0).needs
    }
}

fn account() -> Account {
    Account {
        address: "10.7.0.9".parse().unwrap(),
        port: 443,
        user: "root".to_owned(),
    }
}

/// A credential, the two passwords of a BMC, a person's token, and a stored answer with a secret.
async fn seed(server: &Server, admin: &Caller) -> Caller {
    for name in ["bmc", "root"] {
        let spec = json!({ "purpose": "bmc", "user": "root", "secret": "hunter2" });
        let path = format!("/v1/credentials/{name}");
        admin.put(&path, &json!({ "spec": spec })).await.expect(201);
    }
    let mut conn = server.app.pool.acquire().await.unwrap();
    let seal = |secret: &[u8]| {
        let sealed = server.app.keys.master.seal(&account().place(), secret);
        sealed.unwrap()
    };
    let prepared = Prepared {
        based_on: &[1; 32],
        current: &seal(b"current"),
        fresh: &seal(b"next"),
    };
    let now = server.app.clock.now();
    db::bmc_passwords::prepare(&mut conn, &account(), prepared, now)
        .await
        .unwrap();
    let made = make_token(admin).await;
    server.with(made["secret"].as_str().map(str::to_owned))
}

async fn make_token(admin: &Caller) -> Value {
    let body = json!({ "name": "ci", "role": "viewer", "expires_in_s": 3600 });
    let keyed = admin.header("idempotency-key", "once");
    keyed.post("/v1/tokens", &body).await.expect(201).body
}

/// Everything sealed opens on a server, and every row counts.
async fn assert_opens(server: &Server, admin: &Caller, ci: &Caller) {
    let (admin, ci) = (
        server.with(admin.token.clone()),
        server.with(ci.token.clone()),
    );
    ci.get("/v1/sites").await.expect(200);
    let replayed = make_token(&admin).await;
    assert_eq!(replayed["secret"].as_str(), ci.token.as_deref());
    for name in ["bmc", "root"] {
        let shown = admin.get(&format!("/v1/credentials/{name}")).await;
        assert_eq!(shown.expect(200).body["status"]["set"], true);
    }
    let mut conn = server.app.pool.acquire().await.unwrap();
    let row = db::bmc_passwords::find(&mut conn, &account()).await;
    let row = row.unwrap().unwrap();
    let open = |sealed| {
        let opened = server.app.keys.master.open(&account().place(), sealed);
        opened.unwrap()
    };
    assert_eq!(open(&row.current), b"current");
    assert_eq!(open(row.next.as_ref().unwrap()), b"next");
}

async fn told(server: &Server, kind: &str) -> Vec<(String, Value)> {
    let query = "SELECT actor, detail FROM events WHERE kind = $1 ORDER BY seq";
    sqlx::query_as(query)
        .bind(kind)
        .fetch_all(&server.app.pool)
        .await
        .unwrap()
}

#[tokio::test]
async fn another_master_key_takes_over_through_crashes_while_servers_run() {
    let server = Server::start().await;
    let admin = server.admin().await;
    let ci = seed(&server, &admin).await;
    let event = EventId::new();
    let mark = server.app.keys.master.marks.seal(event);
    let digests = ciphertexts(&server).await;
    let second = start_replica(&server, both()).await;
    assert_opens(&second, &admin, &ci).await;

    // A crash before the commit: the rotation has not begun, and the former key alone is enough.
    let host = Host::open(&server).await;
    let mut tx = server.app.pool.begin().await.unwrap();
    let act = host.act(SignedDuration::ZERO);
    assert!(
        master::begin(&mut tx, &host.keys.master, act)
            .await
            .unwrap()
    );
    tx.rollback().await.unwrap();
    assert_eq!(refusal(&server, former()).await, None);

    let host = Host::open(&server).await;
    assert_eq!(host.begin().await, Ok(true));
    // A crash after one secret of each kind. The second server has not heard of the begin, and seals
    // with the former key for another second.
    let mut tx = server.app.pool.begin().await.unwrap();
    let moved = master::wrap_some(&mut tx, &host.keys.master, 1).await;
    assert_eq!(moved.unwrap(), 4);
    tx.commit().await.unwrap();
    assert_opens(&second, &admin, &ci).await;
    assert_eq!(second.app.keys.master.id(), former().id());
    follow(&second.app, &mut Replica::here()).await.unwrap();
    assert_eq!(second.app.keys.master.id(), next().id());
    assert_opens(&second, &admin, &ci).await;

    // The next process goes on.
    let host = Host::open(&server).await;
    assert_eq!(host.begin().await, Ok(false));
    let now = server.app.clock.now();
    assert!(!host.needs().await.is_empty());
    let moved = master::wrap_all(&server.app.pool, &host.keys.master, now).await;
    assert!(moved.unwrap() > 0);
    assert_eq!(host.needs().await, [""; 0]);
    assert_eq!(host.finish(master::SETTLES).await.unwrap(), former().id());

    let third = start_replica(&server, next()).await;
    assert_opens(&third, &admin, &ci).await;
    assert!(refusal(&server, former()).await.is_some());
    // An agent that was off for weeks shows a mark from before.
    assert!(third.app.keys.master.marks.fits(event, &mark));
    assert_eq!(third.app.keys.master.marks.seal(event), mark);
    // The password of a BMC remembers the ciphertext of its credential.
    assert_eq!(ciphertexts(&server).await, digests);
    for kind in ["key.rotation_started", "key.rotated"] {
        let events = told(&server, kind).await;
        let detail = json!({ "key": "master", "former": former().id(), "next": next().id() });
        assert_eq!(events, [("host:ada@server-1".to_owned(), detail)], "{kind}");
    }
}

async fn ciphertexts(server: &Server) -> Vec<Digest> {
    let query = "SELECT ciphertext FROM secrets ORDER BY object_id";
    let rows: Vec<Vec<u8>> = sqlx::query_scalar(query)
        .fetch_all(&server.app.pool)
        .await
        .unwrap();
    rows.iter().map(|row| Digest::of(row)).collect()
}

#[tokio::test]
async fn a_server_with_one_key_of_a_rotation_does_not_start() {
    let server = Server::start().await;
    let refused = refusal(&server, next()).await.unwrap();
    assert!(refused.contains("was sealed by key"), "{refused}");
    let host = Host::open(&server).await;
    assert_eq!(host.begin().await, Ok(true));

    assert_eq!(refusal(&server, both()).await, None);
    for one in [former(), next()] {
        let id = one.id().to_owned();
        let refused = refusal(&server, one).await.unwrap();
        assert!(refused.contains("--former-key-file"), "{id}: {refused}");
    }
    // A server that runs with the former key alone learns of the rotation.
    let lacking = follow(&server.app, &mut Replica::here()).await;
    assert!(lacking.is_err());
    let sealed = server.app.keys.master.seal("secrets/a", b"late");
    assert!(sealed.is_err(), "a secret under the former key");
}

#[tokio::test]
async fn a_rotation_waits_for_servers_secrets_and_requests() {
    let server = Server::start().await;
    let admin = server.admin().await;
    seed(&server, &admin).await;
    let host = Host::open(&server).await;
    let settled = master::SETTLES;
    let refused = host.finish(settled).await.unwrap_err();
    assert!(refused.contains("no rotation"), "{refused}");

    // The server runs with the former key alone.
    follow(&server.app, &mut Replica::here()).await.unwrap();
    let refused = host.begin().await.unwrap_err();
    assert!(refused.contains("run without the key"), "{refused}");
    sqlx::query("DELETE FROM key_holders")
        .execute(&server.app.pool)
        .await
        .unwrap();
    let second = start_replica(&server, both()).await;
    follow(&second.app, &mut Replica::here()).await.unwrap();
    assert_eq!(host.begin().await, Ok(true));

    let refused = host.finish(SignedDuration::ZERO).await.unwrap_err();
    assert!(refused.contains("finish after"), "{refused}");
    let refused = host.finish(settled).await.unwrap_err();
    assert!(
        refused.contains("2 of secrets under") && refused.contains("2 of bmc_passwords"),
        "{refused}"
    );
    let now: Timestamp = server.app.clock.now();
    let moved = master::wrap_all(&server.app.pool, &host.keys.master, now).await;
    assert!(moved.unwrap() > 0);
    assert_eq!(host.finish(settled).await.unwrap(), former().id());
    let refused = host.begin().await.unwrap_err();
    assert!(refused.contains("is the present key"), "{refused}");

    // A server without news of the rotation seals by the former key after the end.
    let mut conn = server.app.pool.acquire().await.unwrap();
    assert_eq!(report::list_strays(&mut conn).await.unwrap(), [""; 0]);
    let place = place("agent_ca");
    let sealed = db::keys::get(&mut conn, "agent_ca").await.unwrap();
    let opened = next().open(&place, &sealed).unwrap();
    let late = former().seal(&place, &opened).unwrap();
    db::keys::set(&mut conn, "agent_ca", &late, now)
        .await
        .unwrap();
    let strays = report::list_strays(&mut conn).await.unwrap();
    assert!(strays[0].contains("1 of server_keys under"), "{strays:?}");
    assert_eq!(host.begin().await, Ok(false));
    let moved = master::wrap_all(&server.app.pool, &host.keys.master, now).await;
    assert!(moved.unwrap() > 0);
    assert_eq!(report::list_strays(&mut conn).await.unwrap(), [""; 0]);
}

#[tokio::test]
async fn a_rotation_gives_no_seal_to_a_row_without_a_valid_seal() {
    let server = Server::start().await;
    let admin = server.admin().await;
    let ci = seed(&server, &admin).await;
    let host = Host::open(&server).await;
    assert_eq!(host.begin().await, Ok(true));
    sqlx::query("UPDATE tokens SET role = 'admin' WHERE name = 'ci'")
        .execute(&server.app.pool)
        .await
        .unwrap();
    let now = server.app.clock.now();
    let moved = master::wrap_all(&server.app.pool, &host.keys.master, now).await;
    moved.unwrap();
    host.finish(master::SETTLES).await.unwrap();
    let third = start_replica(&server, next()).await;
    let path = "/v1/users";
    third.with(admin.token).get(path).await.expect(200);
    assert_eq!(third.with(ci.token).get(path).await.status, 401);
}

/// An act on a key of the database, in a transaction of its own.
struct Acts<'a> {
    world: &'a World,
    key: RingKey,
}

impl Acts<'_> {
    fn act(&self) -> Act<'static> {
        Act {
            actor: "host:ada@server-1",
            now: self.world.server.app.clock.now(),
        }
    }

    async fn begin(&self) -> bool {
        let app = &self.world.server.app;
        let mut tx = app.pool.begin().await.unwrap();
        let begun = signing::begin(&mut tx, &app.keys.master, self.key, self.act()).await;
        tx.commit().await.unwrap();
        begun.unwrap()
    }

    async fn finish(&self, forgotten: &[&str]) -> Result<String, String> {
        let app = &self.world.server.app;
        let forgotten: Vec<String> = forgotten.iter().map(|&name| name.to_owned()).collect();
        let (master, act) = (&app.keys.master, self.act());
        let mut tx = app.pool.begin().await.unwrap();
        let ended = signing::finish(&mut tx, master, self.key, &forgotten, act).await;
        let ended = ended.map_err(|error| error.to_string())?;
        tx.commit().await.unwrap();
        Ok(ended)
    }

    /// The names of the holders of the former key alone.
    async fn holders(&self) -> Vec<String> {
        let mut conn = self.world.server.app.pool.acquire().await.unwrap();
        let row = db::key_rotations::find(&mut conn, self.key.name()).await;
        let next = row.unwrap().expect("a rotation is under way").next;
        let holders = signing::list_holders(&mut conn, self.key, &next).await;
        holders
            .unwrap()
            .into_iter()
            .map(|holder| holder.name)
            .collect()
    }
}

fn ssh_ca(world: &World) -> Acts<'_> {
    Acts {
        world,
        key: RingKey::UserCa,
    }
}

fn permit(world: &World) -> Acts<'_> {
    Acts {
        world,
        key: RingKey::Permit,
    }
}

/// The lines of the present CA and of the new CA.
async fn ca_lines(world: &World) -> (String, Option<String>) {
    let app = &world.server.app;
    let mut conn = app.pool.acquire().await.unwrap();
    let cas = app.keys.open_user_cas(&mut conn).await.unwrap();
    let next = cas.next.as_ref().map(|next| ca_line(next).unwrap());
    (ca_line(&cas.current).unwrap(), next)
}

/// The bytes of the second word of an OpenSSH line.
fn blob(line: &str) -> Vec<u8> {
    let word = line.split_whitespace().nth(1).unwrap();
    STANDARD.decode(word).unwrap()
}

/// A converge order: the CA that signed the login, of the known lines, and the CAs that the node
/// gets.
fn converge_of(job: &Job, known: &[String]) -> (String, String) {
    let JobSpec::Converge { login, plan } = &job.spec else {
        panic!("{}", job.spec.kind())
    };
    let certificate = blob(&login.user_key.certificate);
    let signs = |line: &&String| {
        let ca = blob(line);
        certificate.windows(ca.len()).any(|window| window == ca)
    };
    let signer = known.iter().find(signs).expect("a known CA");
    (signer.clone(), plan.user_ca.clone())
}

/// Leases the order of a converge, and does the work.
async fn converge(
    world: &mut World,
    name: &str,
    action: &str,
    known: &[String],
) -> (String, String) {
    world.ask(name, action).await.expect(202);
    let job = world.until_leased(name, "converge").await;
    world.agent.work(&job).await.unwrap();
    world.settle().await;
    converge_of(&job, known)
}

#[tokio::test]
async fn another_ssh_ca_signs_for_a_node_once_the_node_has_taken_it() {
    let mut world = World::serving(2, |_, body| body).await;
    let (former, none) = ca_lines(&world).await;
    assert_eq!(none, None);
    // A crash before the commit leaves no new key.
    let app = &world.server.app;
    let mut tx = app.pool.begin().await.unwrap();
    let act = ssh_ca(&world).act();
    let begun = signing::begin(&mut tx, &app.keys.master, RingKey::UserCa, act).await;
    assert!(begun.unwrap());
    tx.rollback().await.unwrap();
    assert_eq!(ca_lines(&world).await, (former.clone(), None));

    assert!(ssh_ca(&world).begin().await);
    assert!(!ssh_ca(&world).begin().await, "goes on");
    let (_, next) = ca_lines(&world).await;
    let next = next.unwrap();
    let known = [former.clone(), next.clone()];
    let both = format!("{former}\n{next}");
    assert_eq!(ssh_ca(&world).holders().await, ["first", "n1", "n2"]);

    // The agent dies before the outcome: the successor still comes with the former CA.
    world.ask("n1", "converge").await.expect(202);
    let job = world.until_leased("n1", "converge").await;
    assert_eq!(converge_of(&job, &known), (former.clone(), both.clone()));
    world.replace_agent(IMMORTAL).await;
    let job = world.until_leased("n1", "converge").await;
    assert_eq!(converge_of(&job, &known), (former.clone(), both.clone()));
    world.agent.work(&job).await.unwrap();
    world.settle().await;
    assert_eq!(ssh_ca(&world).holders().await, ["n2"]);
    let seen = converge(&mut world, "n1", "check-drift", &known).await;
    assert_eq!(seen, (next.clone(), both.clone()));
    let seen = converge(&mut world, "n2", "check-drift", &known).await;
    assert_eq!(seen, (former.clone(), both.clone()));

    let refused = ssh_ca(&world).finish(&[]).await.unwrap_err();
    assert!(refused.contains("the node n2 of lab"), "{refused}");
    let refused = ssh_ca(&world).finish(&["n7"]).await.unwrap_err();
    assert!(refused.contains("--forget n7"), "{refused}");
    converge(&mut world, "n2", "converge", &known).await;
    ssh_ca(&world).finish(&[]).await.unwrap();
    assert_eq!(ca_lines(&world).await, (next.clone(), None));
    for name in ["n1", "n2"] {
        let seen = converge(&mut world, name, "converge", &known).await;
        assert_eq!(seen, (next.clone(), next.clone()), "{name}");
    }
    assert_eq!(told(&world.server, "key.rotation_started").await.len(), 1);
    assert_eq!(told(&world.server, "key.rotated").await.len(), 1);
}

#[tokio::test]
async fn an_agent_of_the_version_before_takes_the_new_ssh_ca_from_a_node() {
    let mut world = World::serving(1, |_, body| body).await;
    assert!(ssh_ca(&world).begin().await);
    world.replace_agent(IMMORTAL).await;
    let (former, next) = ca_lines(&world).await;
    let known = [former.clone(), next.unwrap()];
    converge(&mut world, "n1", "converge", &known).await;
    assert_eq!(ssh_ca(&world).holders().await, [""; 0]);

    world.reads(&orders::KINDS.join(","));
    let (_, given) = converge(&mut world, "n1", "converge", &known).await;
    assert_eq!(given, former);
    assert_eq!(ssh_ca(&world).holders().await, ["n1"]);
    let (signer, _) = converge(&mut world, "n1", "check-drift", &known).await;
    assert_eq!(signer, former);
    // A node that is off for good is given up by name.
    ssh_ca(&world).finish(&["n1"]).await.unwrap();
}

#[tokio::test]
async fn a_node_that_refuses_the_new_ssh_ca_gets_the_former_again() {
    let mut world = World::serving(1, |_, body| body).await;
    assert!(ssh_ca(&world).begin().await);
    world.replace_agent(IMMORTAL).await;
    let (former, next) = ca_lines(&world).await;
    let known = [former.clone(), next.unwrap()];
    converge(&mut world, "n1", "converge", &known).await;
    world.ask("n1", "converge").await.expect(202);
    let job = world.until_leased("n1", "converge").await;
    assert_eq!(converge_of(&job, &known).0, known[1]);

    // A server of the version before has written the former CA alone.
    let failure = Failure::fatal(FailureCode::SshAuthRefused, "refused for root");
    let agent = world.client_at(world.listen().await);
    agent
        .report_outcome(
            job.id,
            job.attempt,
            &Outcome::Failed { failure },
            SeenOnNode::default(),
        )
        .await
        .unwrap();
    assert_eq!(ssh_ca(&world).holders().await, ["n1"]);
    let job = world.until_leased("n1", "converge").await;
    assert_eq!(converge_of(&job, &known).0, former);
    world.agent.work(&job).await.unwrap();
    world.settle().await;
    assert_eq!(ssh_ca(&world).holders().await, [""; 0]);
}

#[tokio::test]
async fn an_image_under_way_needs_the_former_ssh_ca() {
    let mut world = World::start(1).await;
    world.settle().await;
    assert!(ssh_ca(&world).begin().await);
    assert_eq!(installed_without_ca(&world).await, [""; 0]);
    world.claim("n1").await.expect(201);
    world.until_leased("n1", "write_image").await;
    assert_eq!(installed_without_ca(&world).await, ["n1"]);
}

async fn installed_without_ca(world: &World) -> Vec<String> {
    let mut conn = world.server.app.pool.acquire().await.unwrap();
    let rows = db::taken_keys::list_installed_without_ca(&mut conn, "the new CA").await;
    rows.unwrap().into_iter().map(|row| row.name).collect()
}

#[tokio::test]
async fn another_permit_key_signs_once_agents_and_live_images_have_it() {
    let mut world = World::start(2).await;
    world.settle().await;
    assert!(permit(&world).begin().await);
    // The live image trusts the former key alone, and the former key signs.
    world.claim("n1").await.expect(201);
    world.settle().await;
    assert_eq!(world.state("n1").await, "in_service");
    let refused = permit(&world).finish(&[]).await.unwrap_err();
    assert!(refused.contains("the agent first of lab"), "{refused}");

    world.replace_agent(IMMORTAL).await;
    assert!(!permit(&world).holders().await.contains(&"first".to_owned()));
    world.advance(1);
    world.ask("n2", "inspect").await.expect(202);
    world.settle().await;
    permit(&world).finish(&[]).await.unwrap();
    // The live image trusts the new key, and the new key signs.
    world.replace_agent(IMMORTAL).await;
    world.claim("n2").await.expect(201);
    world.settle().await;
    assert_eq!(world.state("n2").await, "in_service");
}
