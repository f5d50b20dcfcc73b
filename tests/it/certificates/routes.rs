//! Every route of the agents' listener, closed to callers without a valid certificate.

use jiff::SignedDuration;
use muster_agent::work::identity::keep::Keep;
use reqwest::Method;
use serde_json::Value;

use super::{Host, server_and_door, site, token};
use crate::simulated::World;
use crate::support::agents::Door;

/// Every route of the agents' listener, with a valid body. `JOB` is the id of a job.
pub(super) const ROUTES: [(&str, &str, &str); 14] = [
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

/// The routes in the source of the agents' listener, without `/agent/v1/`. rustfmt may put the path
/// of a long route on a separate line.
pub(super) fn agent_routes() -> impl Iterator<Item = &'static str> {
    include_str!("../../../server/src/http/agent/mod.rs")
        .split(".route(")
        .skip(1)
        .filter_map(|rest| rest.trim_start().strip_prefix("\"/agent/v1/"))
        .filter_map(|rest| rest.split('"').next())
}

/// The end of a host's call: the status and the code of the refusal.
pub(super) async fn ask(
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
pub(super) async fn tell(
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
    // The host knows the server, and shows a certificate of a foreign authority.
    let keep = Keep::at(far.dir.path()).unwrap();
    let mut kept = keep.read().unwrap().unwrap();
    kept.authority = world.server.app.keys.authorities.now().current.digest();
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
