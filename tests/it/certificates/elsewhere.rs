//! Calls by an agent of a different site, on every route of the agents' listener.

use muster_core::wire::job::JobSpec;

use super::routes::{agent_routes, tell};
use super::{Host, site, token};
use crate::simulated::World;
use crate::support::agents::Door;

/// The answer to an agent of the site `elsewhere`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Elsewhere {
    Refused(u16, &'static str),
    /// A success without any data of the site `lab`.
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

/// An agent of the site `elsewhere` calls every route. The calls change and show no data of the
/// site `lab`.
#[tokio::test]
async fn an_agent_of_another_site_reads_and_changes_nothing_of_this_one() {
    let mut world = World::start(2).await;
    expect_all_listed();
    site(&world.admin, "elsewhere").await;
    let door = Door::open(&world.server.app).await;
    let job = world.until_leased("n1", "boot_live").await;
    let JobSpec::BootLive(spec) = &job.spec else {
        panic!("{job:?}")
    };
    // More data to take: the engine's next work for the site `lab`, and a blob.
    world.engine().await;
    let digest = plant_blob(&world);
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
        expect_answer(&path, &told, expected, &own);
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

/// Every route of the source is in `OF_LAB`, beside the enrolment.
fn expect_all_listed() {
    for route in agent_routes() {
        let filled = route.replace("{job}", "JOB").replace("{hex}", "BLOB");
        let listed = OF_LAB.iter().any(|(_, path, ..)| *path == filled) || route == "enrol";
        assert!(
            listed,
            "{route}: what does it give an agent of another site? say so in OF_LAB"
        );
    }
}

/// Writes a blob to the server's files, and returns the digest.
fn plant_blob(world: &World) -> String {
    let blob = world.server.app.blobs.join("sha256");
    std::fs::create_dir_all(&blob).unwrap();
    let digest = muster_core::values::Digest::of(b"a blob").hex();
    std::fs::write(blob.join(&digest), b"a blob").unwrap();
    digest
}

/// The agent that acts for a site has the orders. The other agent of the site needs no blob.
#[tokio::test]
async fn only_the_acting_agent_of_a_site_fetches_blobs() {
    let world = World::start(1).await;
    site(&world.admin, "elsewhere").await;
    let door = Door::open(&world.server.app).await;
    let path = format!("blobs/sha256/{}", plant_blob(&world));
    let blob = ("GET", path.as_str(), "");
    let first = Host::new(&door, &token(&world.admin, "elsewhere", "east").await);
    first.enrol().await.unwrap();
    let epoch = first.hello().await.unwrap();
    let second = Host::new(&door, &token(&world.admin, "elsewhere", "west").await);
    second.enrol().await.unwrap();
    second.hello().await.unwrap();
    let before = tell(&second, &door, blob, "", epoch).await;
    assert_eq!(before.0, 200, "no agent acts yet: {before:?}");

    let lease = (
        "POST",
        "lease",
        r#"{"epoch":EPOCH,"capacity":9,"wait_s":0}"#,
    );
    assert_eq!(tell(&first, &door, lease, "", epoch).await.0, 200);
    let acting = tell(&first, &door, blob, "", epoch).await;
    assert_eq!((acting.0, acting.1.as_str()), (200, "a blob"));
    let standby = tell(&second, &door, blob, "", epoch).await;
    assert_eq!((standby.0, standby.2.as_str()), (409, "not_acting"));
}

/// Compares the answer of a route with the expected answer. A success has no word of `own`.
fn expect_answer(path: &str, told: &(u16, String, String), expected: Elsewhere, own: &[String]) {
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
}
