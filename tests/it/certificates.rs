//! Agents' certificates, over the real listener and with the real agent's code. An agent enrols
//! once and renews at half of the certificate's life. Time or removal ends the certificate.

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use muster_agent::work::client::Client;
use muster_agent::work::client::error::CallError;
use muster_agent::work::identity::Identity;
use muster_agent::work::identity::keep::Keep;
use muster_core::clock::Clock;
use muster_core::values::Secret;
use muster_core::wire::PROTOCOL;
use muster_core::wire::calls::Hello;
use muster_core::wire::job::JobSpec;
use muster_server::tasks::certificates;
use reqwest::Method;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio_util::task::AbortOnDropHandle;

use crate::simulated::World;
use crate::support::agents::Door;
use crate::support::server::{Caller, Server};

/// Every route of the agents' listener, with a valid body. `JOB` is the id of a job.
const ROUTES: [(&str, &str, &str); 14] = [
    ("POST", "certificate", r#"{"request":"x"}"#),
    (
        "POST",
        "hello",
        r#"{"protocol":1,"version":"0","instance":"b"}"#,
    ),
    ("POST", "site", r#"{"epoch":EPOCH,"have":null,"wait_s":0}"#),
    (
        "POST",
        "lease",
        r#"{"epoch":EPOCH,"capacity":9,"wait_s":0}"#,
    ),
    (
        "POST",
        "jobs/JOB/act",
        r#"{"epoch":EPOCH,"attempt":1,"act":"reset","before":""}"#,
    ),
    ("POST", "jobs/JOB/members", r#"{"epoch":EPOCH,"attempt":1}"#),
    (
        "POST",
        "jobs/JOB/renew",
        r#"{"epoch":EPOCH,"attempt":1,"progress":null,"log":[],"waiting_for":null}"#,
    ),
    (
        "POST",
        "jobs/JOB/outcome",
        r#"{"epoch":EPOCH,"attempt":1,"outcome":{"outcome":"cancelled"}}"#,
    ),
    (
        "POST",
        "permits/redeem",
        r#"{"epoch":EPOCH,"job":"JOB","attempt":1,"permit":"JOB","challenge":null}"#,
    ),
    ("POST", "scheduler", r#"{"epoch":EPOCH,"looks":[]}"#),
    ("POST", "scheduler/jobs", r#"{"epoch":EPOCH,"looks":[]}"#),
    ("POST", "sightings", r#"{"epoch":EPOCH,"sightings":[]}"#),
    ("POST", "consoles", r#"{"epoch":EPOCH,"chunks":[]}"#),
    (
        "GET",
        "blobs/sha256/0000000000000000000000000000000000000000000000000000000000000000",
        "",
    ),
];

/// A limit longer than any step of the tests.
const LIMIT: Duration = Duration::from_secs(60);

/// An agent with the directory of the agent's host.
struct Host {
    dir: TempDir,
    identity: Arc<Identity>,
    client: Client,
    token: Secret,
}

impl Host {
    fn new(door: &Door, token: &Secret) -> Self {
        Self::at(tempfile::tempdir().unwrap(), door, token)
    }

    fn at(dir: TempDir, door: &Door, token: &Secret) -> Self {
        rustls::crypto::aws_lc_rs::default_provider()
            .install_default()
            .ok();
        let identity = Arc::new(Identity::open(dir.path(), Some(token)).unwrap());
        let client = Client::new(&door.url, identity.tls().unwrap()).unwrap();
        Self {
            dir,
            identity,
            client,
            token: token.clone(),
        }
    }

    async fn enrol(&self) -> Result<(), CallError> {
        self.identity.enrol(&self.client, &self.token).await
    }

    async fn hello(&self) -> Result<i64, CallError> {
        let hello = Hello {
            protocol: PROTOCOL,
            version: "0".into(),
            instance: "a".into(),
        };
        self.client.hello(&hello).await.map(|welcome| welcome.epoch)
    }

    /// An HTTP client with the agent's TLS settings and without the agent's other code.
    fn http(&self) -> reqwest::Client {
        let builder =
            reqwest::Client::builder().tls_backend_preconfigured(self.identity.tls().unwrap());
        builder.timeout(LIMIT).no_proxy().build().unwrap()
    }
}

async fn site(admin: &Caller, site: &str) {
    admin
        .put(&format!("/v1/sites/{site}"), &json!({ "spec": {} }))
        .await
        .expect(201);
}

async fn token(admin: &Caller, site: &str, name: &str) -> Secret {
    let made = admin
        .post(
            &format!("/v1/sites/{site}/agents"),
            &json!({ "name": name }),
        )
        .await
        .expect(201);
    Secret::new(made.body["token"].as_str().unwrap())
}

async fn server_and_door() -> (Server, Caller, Door) {
    let server = Server::start().await;
    let admin = server.admin().await;
    site(&admin, "lab").await;
    let door = Door::open(&server.app).await;
    (server, admin, door)
}

/// The code of the server's refusal.
fn code(refused: Result<impl std::fmt::Debug, CallError>) -> String {
    match refused {
        Err(CallError::Refused {
            status: 401, code, ..
        }) => code,
        other => panic!("{other:?}"),
    }
}

async fn events(admin: &Caller, kind: &str) -> usize {
    let page = admin.get("/v1/events?limit=1000").await.expect(200);
    page.body["items"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|event| event["kind"] == kind)
        .count()
}

#[tokio::test]
async fn a_token_is_used_once_by_one_key_and_within_its_day() {
    let (server, admin, door) = server_and_door().await;
    let stolen = token(&admin, "lab", "a").await;
    let host = Host::new(&door, &stolen);
    assert!(
        matches!(host.hello().await, Err(CallError::Refused { status: 401, code, .. }) if code == "certificate_required")
    );
    // The answer to the first request may be lost, so the same key may ask again.
    let again = Identity::open(host.dir.path(), Some(&stolen)).unwrap();
    host.enrol().await.unwrap();
    again.enrol(&host.client, &stolen).await.unwrap();
    assert_eq!(host.hello().await.unwrap(), 1);
    // The server refuses the token with another key, and emits an event.
    let thief = Host::new(&door, &stolen);
    assert_eq!(code(thief.enrol().await), "token_used");
    assert_eq!(
        (
            events(&admin, "agent.certified").await,
            events(&admin, "agent.token_replayed").await
        ),
        (1, 1)
    );
    let late = token(&admin, "lab", "b").await;
    server.app.clock.advance(SignedDuration::from_hours(25));
    // The administrator's API token has expired too.
    let admin = server.admin().await;
    assert_eq!(code(Host::new(&door, &late).enrol().await), "token_expired");
    // An agent without a certificate may get another token. An agent with a certificate may not.
    let fresh = token(&admin, "lab", "b").await;
    Host::new(&door, &fresh).enrol().await.unwrap();
    admin
        .post("/v1/sites/lab/agents", &json!({ "name": "b" }))
        .await
        .expect(409);
    assert_eq!(code(Host::new(&door, &late).enrol().await), "token_unknown");
}

#[tokio::test]
async fn the_first_contact_knows_the_server_and_tells_no_other_one_the_token() {
    let (_server, admin, _door) = server_and_door().await;
    let (_other, other_admin, other_door) = server_and_door().await;
    let ours = token(&admin, "lab", "a").await;
    let misled = Host::new(&other_door, &ours);
    let error = misled.enrol().await.unwrap_err();
    assert!(
        matches!(&error, CallError::Away(why) if why.contains("its authority is another one")),
        "{error}"
    );
    // The other server did not get the token: an agent of the same name can still enrol there.
    let theirs = token(&other_admin, "lab", "a").await;
    Host::new(&other_door, &theirs).enrol().await.unwrap();
    assert!(
        Client::new("http://127.0.0.1:9", misled.identity.tls().unwrap()).is_err(),
        "nothing is said in the clear"
    );
}

#[tokio::test]
async fn a_certificate_is_renewed_at_half_life_and_the_former_stays_valid() {
    let (server, admin, door) = server_and_door().await;
    let clock = server.app.clock.clone();
    let host = Host::new(&door, &token(&admin, "lab", "a").await);
    host.enrol().await.unwrap();
    let (first, former) = (
        host.identity.issued().unwrap(),
        Client::new(&door.url, host.identity.tls().unwrap()).unwrap(),
    );
    let life = first.not_after.duration_since(first.not_before);
    assert!(
        life > SignedDuration::from_hours(7 * 24) - SignedDuration::from_mins(5),
        "{life}"
    );
    assert!(clock.now() < first.renew_at());
    clock.advance(first.renew_at().duration_since(clock.now()));
    let renewing = Arc::clone(&host.identity).keep_renewed(host.client.clone(), clock.clone());
    let _renewing = AbortOnDropHandle::new(tokio::spawn(renewing));
    let renewed = tokio::time::timeout(LIMIT, async {
        loop {
            match host.identity.issued() {
                Some(issued) if issued != first => return issued,
                _ => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        }
    });
    let second = renewed.await.unwrap();
    assert!(second.not_after > first.not_after && second.certificate != first.certificate);
    let hello = Hello {
        protocol: PROTOCOL,
        version: "0".into(),
        instance: "a".into(),
    };
    former.hello(&hello).await.unwrap();
    host.hello().await.unwrap();
    let shown = server
        .admin()
        .await
        .get("/v1/sites/lab/agents")
        .await
        .expect(200);
    assert_eq!(
        shown.body["items"][0]["certified_until"],
        json!(second.not_after)
    );
    // A connection from before the certificate's end is refused after the end.
    clock.advance(first.not_after.duration_since(clock.now()));
    let refused = former.hello(&hello).await.unwrap_err();
    assert!(
        refused.to_string().contains("the server's time is"),
        "{refused}"
    );
    assert_eq!(code(Err::<(), _>(refused)), "certificate_expired");
    host.hello().await.unwrap();
}

#[tokio::test]
async fn an_expiring_certificate_emits_an_event_and_allows_enrolment() {
    let (server, admin, door) = server_and_door().await;
    let host = Host::new(&door, &token(&admin, "lab", "a").await);
    host.enrol().await.unwrap();
    for (days, told) in [(5, 0), (1, 1), (0, 1)] {
        server
            .app
            .clock
            .advance(SignedDuration::from_hours(days * 24));
        certificates::tell_late(&server.app).await.unwrap();
        let admin = server.admin().await;
        assert_eq!(
            events(&admin, "agent.certificate_late").await,
            told,
            "{days}"
        );
    }
    server.app.clock.advance(SignedDuration::from_hours(48));
    assert_eq!(
        code(host.identity.renew(&host.client).await),
        "certificate_expired"
    );
    let again = token(&server.admin().await, "lab", "a").await;
    let host = Host::at(host.dir, &door, &again);
    host.enrol().await.unwrap();
    host.hello().await.unwrap();
}

#[tokio::test]
async fn every_replica_accepts_a_certificate_until_the_agent_is_removed() {
    let (server, admin, door) = server_and_door().await;
    let host = Host::new(&door, &token(&admin, "lab", "a").await);
    host.enrol().await.unwrap();
    let now = server.app.clock.now();
    let other = Server::on(server.app.pool.clone(), Clock::manual(now)).await;
    let other_door = Door::open(&other.app).await;
    let there = Host::at(host.dir, &other_door, &host.token);
    there.hello().await.unwrap();
    assert_eq!(
        other.app.keys.authority.digest(),
        server.app.keys.authority.digest()
    );
    admin
        .header("if-match", "*")
        .delete("/v1/sites/lab/agents/a")
        .await
        .expect(204);
    assert_eq!(code(there.hello().await), "agent_removed");
    assert_eq!(
        code(
            host.client
                .hello(&Hello {
                    protocol: PROTOCOL,
                    version: "0".into(),
                    instance: "a".into()
                })
                .await
        ),
        "agent_removed"
    );
}

/// The routes in the source of the agents' listener, without `/agent/v1/`. rustfmt may put the path
/// of a long route on a separate line.
fn agent_routes() -> impl Iterator<Item = &'static str> {
    include_str!("../../server/src/http/agent/mod.rs")
        .split(".route(")
        .skip(1)
        .filter_map(|rest| rest.trim_start().strip_prefix("\"/agent/v1/"))
        .filter_map(|rest| rest.split('"').next())
}

#[tokio::test]
async fn no_route_of_the_listener_is_open_to_whom_it_is_not_for() {
    let mut world = World::start(1).await;
    let listed = agent_routes().count();
    assert_eq!(
        listed,
        ROUTES.len() + 1,
        "the enrolment, and what is listed here"
    );
    site(&world.admin, "elsewhere").await;
    let door = Door::open(&world.server.app).await;
    let (_far, far_admin, far_door) = server_and_door().await;
    let job = world.until_leased("n1", "boot_live").await.id.to_string();
    let admin = &world.admin;

    let nobody = Host::new(&door, &token(admin, "lab", "nobody").await);
    let removed = Host::new(&door, &token(admin, "lab", "removed").await);
    removed.enrol().await.unwrap();
    admin
        .header("if-match", "*")
        .delete("/v1/sites/lab/agents/removed")
        .await
        .expect(204);
    let stranger = Host::new(&door, &token(admin, "lab", "stranger").await);
    stranger.enrol().await.unwrap();
    let far = Host::new(&far_door, &token(&far_admin, "lab", "stranger").await);
    far.enrol().await.unwrap();
    // The host knows the server, and shows the certificate of another installation's authority.
    let keep = Keep::at(far.dir.path()).unwrap();
    let mut kept = keep.read().unwrap().unwrap();
    kept.authority = world.server.app.keys.authority.digest();
    keep.write(&kept).unwrap();
    let foreign = Host::at(far.dir, &door, &far.token);
    for (method, path, body) in ROUTES {
        assert_eq!(
            ask(&nobody, &door, (method, path, body), &job, 1).await,
            (401, "certificate_required".into()),
            "{path}"
        );
        assert_eq!(
            ask(&removed, &door, (method, path, body), &job, 1).await,
            (401, "agent_removed".into()),
            "{path}"
        );
        assert_eq!(
            ask(&foreign, &door, (method, path, body), &job, 1).await,
            (0, "not let in".into()),
            "{path}"
        );
    }
    let elsewhere = Host::new(&door, &token(admin, "elsewhere", "other").await);
    elsewhere.enrol().await.unwrap();
    let epoch = elsewhere.hello().await.unwrap();
    world
        .server
        .app
        .clock
        .advance(SignedDuration::from_hours(8 * 24));
    for (method, path, body) in ROUTES {
        assert_eq!(
            ask(&elsewhere, &door, (method, path, body), &job, epoch).await,
            (401, "certificate_expired".into()),
            "{path}"
        );
    }
}

/// The answer to an agent that asks for an object of another site.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Elsewhere {
    Refused(u16, &'static str),
    /// A success without any data of the other site.
    Own,
    /// An object without a site, open to every agent.
    Everybodys,
}

/// Every route of the listener, with a body about the site `lab`. `NODE`, `MAC`, `PERMIT` and
/// `CLUSTER` are values of the site.
const OF_LAB: [(&str, &str, &str, Elsewhere); 14] = [
    (
        "POST",
        "certificate",
        r#"{"request":"x"}"#,
        Elsewhere::Refused(400, "invalid_request"),
    ),
    (
        "POST",
        "hello",
        r#"{"protocol":1,"version":"0","instance":"a"}"#,
        Elsewhere::Own,
    ),
    (
        "POST",
        "site",
        r#"{"epoch":EPOCH,"have":null,"wait_s":0}"#,
        Elsewhere::Own,
    ),
    (
        "POST",
        "lease",
        r#"{"epoch":EPOCH,"capacity":9,"wait_s":0}"#,
        Elsewhere::Own,
    ),
    (
        "POST",
        "jobs/JOB/act",
        r#"{"epoch":EPOCH,"attempt":1,"act":"reset","before":""}"#,
        STALE,
    ),
    (
        "POST",
        "jobs/JOB/members",
        r#"{"epoch":EPOCH,"attempt":1}"#,
        STALE,
    ),
    (
        "POST",
        "jobs/JOB/renew",
        r#"{"epoch":EPOCH,"attempt":1,"progress":null,"log":[],"waiting_for":null}"#,
        STALE,
    ),
    (
        "POST",
        "jobs/JOB/outcome",
        r#"{"epoch":EPOCH,"attempt":1,"outcome":{"outcome":"cancelled"}}"#,
        STALE,
    ),
    (
        "POST",
        "permits/redeem",
        r#"{"epoch":EPOCH,"job":"JOB","attempt":1,"permit":"PERMIT","challenge":null}"#,
        STALE,
    ),
    (
        "POST",
        "scheduler",
        r#"{"epoch":EPOCH,"looks":[]}"#,
        Elsewhere::Own,
    ),
    (
        "POST",
        "scheduler/jobs",
        r#"{"epoch":EPOCH,"looks":[{"cluster":"CLUSTER","jobs":[{"id":"1","user":"a","state":"RUNNING","ends":null,"nodes":["n1"]}]}]}"#,
        Elsewhere::Own,
    ),
    ("POST", "sightings", SIGHTED, Elsewhere::Own),
    (
        "POST",
        "consoles",
        r#"{"epoch":EPOCH,"chunks":[{"node":"NODE","at":"2026-01-05T08:00:00Z","text":"planted"}]}"#,
        Elsewhere::Own,
    ),
    ("GET", "blobs/sha256/BLOB", "", Elsewhere::Everybodys),
];
const STALE: Elsewhere = Elsewhere::Refused(409, "stale_attempt");
const SIGHTED: &str = r#"{"epoch":EPOCH,"sightings":[{"at":"2026-01-05T08:00:00Z","mac":"MAC","what":"dhcp","uuid":null,"serial":null,"detail":"planted"}]}"#;

/// All rows of the site `lab`, with the time of the last call by the site's agent.
async fn of_lab(world: &World) -> String {
    let query = "WITH lab AS (SELECT id FROM objects WHERE kind = 'site' AND name = 'lab'), own AS (SELECT n.* FROM nodes n JOIN lab ON n.site_id = lab.id)
        SELECT concat_ws(E'\\n',
            (SELECT string_agg(t::text, ' ' ORDER BY t::text) FROM own t),
            (SELECT string_agg(t::text, ' ' ORDER BY t::text) FROM jobs t JOIN own ON own.id = t.node_id),
            (SELECT string_agg(t::text, ' ' ORDER BY t::text) FROM permits t JOIN own ON own.id = t.node_id),
            (SELECT string_agg(t::text, ' ' ORDER BY t::text) FROM events t JOIN own ON own.id = t.node_id),
            (SELECT string_agg(t::text, ' ' ORDER BY t::text) FROM console_chunks t JOIN own ON own.id = t.node_id),
            (SELECT string_agg(t::text, ' ' ORDER BY t::text) FROM events t JOIN lab ON lab.id = t.object_id),
            (SELECT string_agg(t::text, ' ' ORDER BY t::text) FROM job_acts t),
            (SELECT string_agg(t::text, ' ' ORDER BY t::text) FROM job_logs t),
            (SELECT string_agg(t::text, ' ' ORDER BY t::text) FROM scheduler_looks t),
            (SELECT string_agg(t::text, ' ' ORDER BY t::text) FROM scheduler_jobs t),
            (SELECT string_agg(t::text, ' ' ORDER BY t::text) FROM agents t JOIN lab ON lab.id = t.site_id),
            (SELECT string_agg(t::text, ' ' ORDER BY t::text) FROM site_leases t JOIN lab ON lab.id = t.site_id))";
    sqlx::query_scalar(query)
        .fetch_one(&world.server.app.pool)
        .await
        .unwrap()
}

/// An agent of another site calls every route. The calls change and show no data of the site `lab`.
#[tokio::test]
async fn an_agent_of_another_site_reads_and_changes_nothing_of_this_one() {
    let mut world = World::start(2).await;
    for route in agent_routes() {
        let filled = route.replace("{job}", "JOB").replace("{hex}", "BLOB");
        let listed = OF_LAB.iter().any(|(_, path, ..)| *path == filled) || route == "enrol";
        assert!(
            listed,
            "{route}: what does it give an agent of another site? say so in OF_LAB"
        );
    }
    site(&world.admin, "elsewhere").await;
    let door = Door::open(&world.server.app).await;
    let job = world.until_leased("n1", "boot_live").await;
    let JobSpec::BootLive(spec) = &job.spec else {
        panic!("{job:?}")
    };
    // More data to take: the engine's next work for the site `lab`, and a blob.
    world.engine().await;
    let blob = world.server.app.blobs.join("sha256");
    std::fs::create_dir_all(&blob).unwrap();
    let digest = muster_core::values::Digest::of(b"a blob").hex();
    std::fs::write(blob.join(&digest), b"a blob").unwrap();
    let other = Host::new(&door, &token(&world.admin, "elsewhere", "other").await);
    other.enrol().await.unwrap();
    let epoch = other.hello().await.unwrap();
    let mac = world.machine("n1", |machine| machine.mac).to_string();
    let own = [
        "\"n1\"",
        "\"n2\"",
        "\"prov\"",
        "10.77.",
        &mac,
        &job.node.to_string(),
        &job.id.to_string(),
    ]
    .map(str::to_owned);
    let cluster: String = sqlx::query_scalar("SELECT id::text FROM objects WHERE kind = 'cluster'")
        .fetch_one(&world.server.app.pool)
        .await
        .unwrap();
    let before = of_lab(&world).await;
    for (method, path, body, expected) in OF_LAB {
        let fill = |text: &str| {
            let text = text
                .replace("NODE", &job.node.to_string())
                .replace("CLUSTER", &cluster)
                .replace("MAC", &mac)
                .replace("BLOB", &digest);
            text.replace("PERMIT", &spec.permit.to_string())
        };
        let (path, body) = (fill(path), fill(body));
        let told = tell(
            &other,
            &door,
            (method, &path, &body),
            &job.id.to_string(),
            epoch,
        )
        .await;
        match expected {
            Elsewhere::Refused(status, code) => {
                assert_eq!((told.0, told.2.as_str()), (status, code), "{path}")
            }
            Elsewhere::Own => {
                assert!((200..300).contains(&told.0), "{path}: {told:?}");
                let leaked: Vec<_> = own.iter().filter(|word| told.1.contains(*word)).collect();
                assert!(leaked.is_empty(), "{path} tells of {leaked:?}: {}", told.1);
            }
            Elsewhere::Everybodys => {
                assert_eq!((told.0, told.1.as_str()), (200, "a blob"), "{path}")
            }
        }
        assert_eq!(
            of_lab(&world).await,
            before,
            "{path} changed something of another site"
        );
    }
    // The other site's events report the sighting of a machine of the site `lab`.
    let seen = world
        .admin
        .get("/v1/events?limit=1000")
        .await
        .expect(200)
        .text;
    assert!(seen.contains("and belongs to another site"), "{seen}");
}

/// Another agent gets the name of a removed agent. The certificate and the tokens of the removed
/// agent are refused.
#[tokio::test]
async fn a_name_is_given_again_and_nothing_of_the_former_goes_with_it() {
    let (server, admin, door) = server_and_door().await;
    site(&admin, "elsewhere").await;
    let used = token(&admin, "lab", "a").await;
    let former = Host::new(&door, &used);
    former.enrol().await.unwrap();
    let epoch = former.hello().await.unwrap();
    // The name of an agent with a certificate is taken in every site.
    for site in ["lab", "elsewhere"] {
        let taken = admin
            .post(&format!("/v1/sites/{site}/agents"), &json!({ "name": "a" }))
            .await;
        assert_eq!(taken.problem().1, "name_taken", "{site}");
    }
    let never = token(&admin, "lab", "b").await;
    let taken = admin
        .post("/v1/sites/elsewhere/agents", &json!({ "name": "b" }))
        .await;
    assert_eq!(
        taken.problem().1,
        "name_taken",
        "one without a certificate is not moved to another site either"
    );
    for name in ["a", "b"] {
        admin
            .header("if-match", "*")
            .delete(&format!("/v1/sites/lab/agents/{name}"))
            .await
            .expect(204);
    }
    let late = token(&admin, "elsewhere", "b").await;
    let fresh = token(&admin, "elsewhere", "a").await;
    let next = Host::new(&door, &fresh);
    next.enrol().await.unwrap();
    next.hello().await.unwrap();
    let issued = next.identity.issued().unwrap();
    assert_eq!(
        (
            issued.site.as_str(),
            former.identity.issued().unwrap().site.as_str()
        ),
        ("elsewhere", "lab")
    );
    assert_ne!(
        issued.agent,
        former.identity.issued().unwrap().agent,
        "it is somebody else"
    );
    // The removed agent's certificate, renewal and token are refused.
    assert_eq!(code(former.hello().await), "agent_removed");
    assert_eq!(
        code(former.identity.renew(&former.client).await),
        "agent_removed"
    );
    assert_eq!(code(Host::new(&door, &used).enrol().await), "token_unknown");
    assert_eq!(
        code(Host::new(&door, &never).enrol().await),
        "token_unknown"
    );
    for route in ROUTES {
        let told = ask(&former, &door, route, &uuid::Uuid::nil().to_string(), epoch).await;
        assert_eq!(told, (401, "agent_removed".into()), "{route:?}");
    }
    // The next agent's token works once, for a single key, within a day.
    assert_eq!(code(Host::new(&door, &fresh).enrol().await), "token_used");
    server.app.clock.advance(SignedDuration::from_hours(25));
    assert_eq!(code(Host::new(&door, &late).enrol().await), "token_expired");
    next.hello().await.unwrap();
    let listed = server
        .admin()
        .await
        .get("/v1/sites/elsewhere/agents")
        .await
        .expect(200);
    let names: Vec<_> = listed.body["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|agent| agent["name"].clone())
        .collect();
    assert_eq!(names, ["a", "b"]);
}

/// The end of a host's call: the status and the code of the refusal.
async fn ask(
    host: &Host,
    door: &Door,
    (method, path, body): (&str, &str, &str),
    job: &str,
    epoch: i64,
) -> (u16, String) {
    let (status, _, code) = tell(host, door, (method, path, body), job, epoch).await;
    (status, code)
}

/// The end of a host's call: the status, the text of the answer and the code.
async fn tell(
    host: &Host,
    door: &Door,
    (method, path, body): (&str, &str, &str),
    job: &str,
    epoch: i64,
) -> (u16, String, String) {
    let fill = |text: &str| {
        text.replace("JOB", job)
            .replace("EPOCH", &epoch.to_string())
    };
    let method: Method = method.parse().unwrap();
    let request = host
        .http()
        .request(method, format!("{}/agent/v1/{}", door.url, fill(path)));
    match request
        .header("content-type", "application/json")
        .body(fill(body))
        .send()
        .await
    {
        Ok(answer) => {
            let status = answer.status().as_u16();
            let text = answer.text().await.unwrap_or_default();
            let body: Value = serde_json::from_str(&text).unwrap_or_default();
            (
                status,
                text,
                body["code"].as_str().unwrap_or_default().to_owned(),
            )
        }
        Err(_) => (0, String::new(), "not let in".into()),
    }
}

#[tokio::test]
async fn no_key_and_no_token_is_told_to_anybody() {
    let (server, admin, door) = server_and_door().await;
    let token = token(&admin, "lab", "a").await;
    let host = Host::new(&door, &token);
    host.enrol().await.unwrap();
    host.identity.renew(&host.client).await.unwrap();
    drop(Host::new(&door, &token).enrol().await.unwrap_err());
    let key = Keep::at(host.dir.path())
        .unwrap()
        .read()
        .unwrap()
        .unwrap()
        .key;
    let line = key.reveal().lines().nth(1).unwrap();
    let secret = token.reveal().split('_').nth(2).unwrap();
    let mut told = Vec::new();
    for path in [
        "/v1/events?limit=1000",
        "/v1/sites/lab/agents",
        "/agents",
        "/events",
        "/metrics",
    ] {
        told.push(admin.get(path).await.text);
    }
    let rows: Vec<String> = sqlx::query_scalar("SELECT agents::text FROM agents UNION ALL SELECT events::text FROM events UNION ALL SELECT server_keys::text FROM server_keys")
        .fetch_all(&server.app.pool)
        .await
        .unwrap();
    told.extend(rows);
    told.push(format!("{:?} {:?}", host.identity, host.client));
    for text in told {
        assert!(
            !text.contains(line) && !text.contains(secret) && !text.contains("PRIVATE KEY"),
            "{text}"
        );
    }
}

#[tokio::test]
async fn a_certificate_from_the_future_is_named_as_a_clock_that_was_put_back() {
    let (server, admin, door) = server_and_door().await;
    let host = Host::new(&door, &token(&admin, "lab", "a").await);
    host.enrol().await.unwrap();
    let earlier: Timestamp = server.app.clock.now() - SignedDuration::from_hours(1);
    let restored = Server::on(server.app.pool.clone(), Clock::manual(earlier)).await;
    let other_door = Door::open(&restored.app).await;
    let host = Host::at(host.dir, &other_door, &host.token);
    assert_eq!(code(host.hello().await), "certificate_early");
}
