//! Witnesses of a caution: agents that show an event missing from the database. A seal proves that
//! the installation sent the event. A single witness stops only the site of the agent.

use axum::Router;
use axum::body::Body;
use axum::http::Request;
use muster_core::ids::EventId;
use muster_core::wire::job::{Job, JobSpec};
use muster_core::wire::node::{Answer, Failure, FailureCode};
use muster_core::wire::result::Outcome;
use muster_lab::simulated::agent::Stop;
use muster_lab::simulated::agent::calls::Mark;
use muster_server::app::App;
use serde_json::{Value, json};
use tower::ServiceExt as _;

use crate::simulated::World;
use crate::support::agents::in_process;
use crate::support::server::{Caller, Server};

/// An agent that only says hello.
struct Voice {
    router: Router,
    token: String,
}

/// The answer to a hello.
#[derive(Debug)]
struct Told {
    status: u16,
    code: String,
    mark: Option<Mark>,
}

impl Voice {
    /// Enrols an agent, and declares a missing site.
    async fn enrol(server: &Server, admin: &Caller, site: &str, name: &str) -> Self {
        let path = format!("/v1/sites/{site}");
        if admin.get(&path).await.status == 404 {
            admin.put(&path, &json!({ "spec": {} })).await.expect(201);
        }
        let made = admin
            .post(&format!("{path}/agents"), &json!({ "name": name }))
            .await
            .expect(201);
        Self {
            router: in_process(&server.app),
            token: made.body["token"].as_str().unwrap().to_owned(),
        }
    }

    async fn hello(&self, mark: Option<&Mark>) -> Told {
        let mut request = Request::post("/agent/v1/hello")
            .header("authorization", format!("Bearer {}", self.token))
            .header("content-type", "application/json");
        for (name, value) in mark.into_iter().flat_map(Mark::headers) {
            request = request.header(name, value);
        }
        let hello = json!({ "protocol": 1, "version": "0", "instance": "a" });
        let request = request.body(Body::from(hello.to_string())).unwrap();
        let response = self.router.clone().oneshot(request).await.unwrap();
        let status = response.status().as_u16();
        let mark = Mark::of(response.headers());
        let bytes = axum::body::to_bytes(response.into_body(), 1 << 20)
            .await
            .unwrap();
        let body: Value = serde_json::from_slice(&bytes).unwrap();
        let code = body["code"].as_str().unwrap_or_default().to_owned();
        Told { status, code, mark }
    }

    /// Shows an accepted mark, and returns the mark of the answer.
    async fn accepted(&self, mark: &Mark) -> Option<Mark> {
        let told = self.hello(Some(mark)).await;
        assert_eq!(told.status, 200, "{told:?}");
        told.mark
    }

    /// Shows a mark, or none, and is refused.
    async fn refused(&self, mark: Option<&Mark>) {
        let told = self.hello(mark).await;
        assert_eq!((told.status, told.code.as_str()), (401, "agent_lies"));
    }
}

/// An event that the installation sent and the database lost.
fn lost(app: &App) -> Mark {
    let event = EventId::new();
    Mark {
        event: event.to_string(),
        seal: Some(app.keys.master.marks.seal(event)),
    }
}

/// An event that the installation never sent, without a seal.
fn invented() -> Mark {
    Mark {
        event: EventId::new().to_string(),
        seal: None,
    }
}

async fn count(app: &App, kind: &str) -> i64 {
    sqlx::query_scalar("SELECT count(*) FROM events WHERE kind LIKE $1")
        .bind(kind)
        .fetch_one(&app.pool)
        .await
        .unwrap()
}

/// Whether the caution holds for the whole fleet, and the sites of the witnesses. `None` without a
/// caution.
async fn caution(admin: &Caller) -> Option<(bool, Vec<String>)> {
    let status = admin.get("/v1/caution").await.expect(200).body;
    let caution = status["caution"].as_object()?;
    let sites = caution["sites"].as_array().unwrap().iter();
    let names = sites.map(|site| site.as_str().unwrap().to_owned());
    Some((caution["whole_fleet"].as_bool().unwrap(), names.collect()))
}

fn only(sites: &[&str]) -> Option<(bool, Vec<String>)> {
    Some((false, sites.iter().map(|site| (*site).to_owned()).collect()))
}

async fn confirm(admin: &Caller) {
    let status = admin.get("/v1/caution").await.expect(200).body;
    let body = json!({ "id": status["caution"]["id"], "note": "compared" });
    admin.post("/v1/caution/confirm", &body).await.expect(200);
}

async fn remove(admin: &Caller, site: &str, name: &str) {
    admin
        .header("if-match", "*")
        .delete(&format!("/v1/sites/{site}/agents/{name}"))
        .await
        .expect(204);
}

#[tokio::test]
async fn an_event_that_was_never_sent_opens_no_caution_and_refuses_its_agent() {
    let server = Server::start().await;
    let (admin, app) = (server.admin().await, &server.app);
    let honest = Voice::enrol(&server, &admin, "lab", "honest").await;
    let liar = Voice::enrol(&server, &admin, "elsewhere", "liar").await;
    let forger = Voice::enrol(&server, &admin, "third", "forger").await;
    // A lost event opens a single caution with a single event, however often the agent calls.
    let shown = lost(app);
    let first = honest.accepted(&shown).await;
    for _ in 0..3 {
        assert_eq!(
            honest.accepted(&shown).await,
            first,
            "the answer may be lost"
        );
    }
    assert_eq!(caution(&admin).await, only(&["lab"]));
    assert_eq!(count(app, "caution.%").await, 1);
    // The event of the caution is known, so the agent is silent from now on.
    let known = first.unwrap();
    assert_eq!(honest.accepted(&known).await, None);
    // The shown event is recorded, so retention keeps the event known.
    let shows: String =
        sqlx::query_scalar("SELECT shown_event::text FROM agents WHERE name = 'honest'")
            .fetch_one(&app.pool)
            .await
            .unwrap();
    assert_eq!(shows, known.event);
    // An invented event of an agent with seals, and an event with a foreign seal.
    assert_eq!(liar.accepted(&known).await, None);
    let forged = Mark {
        seal: shown.seal,
        ..invented()
    };
    for _ in 0..3 {
        liar.refused(Some(&invented())).await;
        forger.refused(Some(&forged)).await;
    }
    liar.refused(None).await;
    assert_eq!(count(app, "agent.lies").await, 2, "one for each agent");
    assert_eq!(count(app, "caution.%").await, 1);
    assert_eq!(caution(&admin).await, only(&["lab"]));
    let listed = admin.get("/v1/sites/elsewhere/agents").await.expect(200);
    assert_eq!(listed.body["items"][0]["refused"], "lies");
    // A person has looked, and enrols the agent anew.
    remove(&admin, "elsewhere", "liar").await;
    let anew = Voice::enrol(&server, &admin, "elsewhere", "liar").await;
    assert_eq!(anew.hello(None).await.status, 200);
}

#[tokio::test]
async fn a_settled_event_opens_no_second_caution() {
    let server = Server::start().await;
    let (admin, app) = (server.admin().await, &server.app);
    let agent = Voice::enrol(&server, &admin, "lab", "a").await;
    let shown = lost(app);
    agent.accepted(&shown).await;
    confirm(&admin).await;
    let known = agent.accepted(&shown).await;
    assert!(known.is_some() && caution(&admin).await.is_none());
    // A second lost event is a second loss.
    agent.accepted(&lost(app)).await;
    assert_eq!(caution(&admin).await, only(&["lab"]));
}

async fn redeem(world: &World, job: &Job) -> Result<Answer, Stop> {
    let JobSpec::BootLive(spec) = &job.spec else {
        panic!("{job:?}")
    };
    world.agent.redeem(job, spec.permit, None).await
}

#[tokio::test]
async fn one_site_stops_itself_and_two_sites_stop_the_fleet() {
    let mut world = World::start(1).await;
    let other = Voice::enrol(&world.server, &world.admin, "elsewhere", "other").await;
    let third = Voice::enrol(&world.server, &world.admin, "third", "third").await;
    let job = world.until_leased("n1", "boot_live").await;
    let app = world.server.app.clone();
    let shown = lost(&app);
    other.accepted(&shown).await;
    // The site of the node has no witness: the permit is good, and the jobs are leased.
    assert_eq!(caution(&world.admin).await, only(&["elsewhere"]));
    let granted = redeem(&world, &job).await.unwrap();
    assert!(matches!(granted, Answer::Granted { .. }), "{granted:?}");
    // The same event shown at a second site is no second witness of the loss.
    third.accepted(&shown).await;
    assert_eq!(caution(&world.admin).await, only(&["elsewhere", "third"]));
    redeem(&world, &job).await.unwrap();
    // A second lost event, from the node's site.
    *world.agent.heard.lock().unwrap() = Some(lost(&app));
    let refused = redeem(&world, &job).await;
    assert_eq!(refused, Err(Stop::Refused(503, "caution".into())));
    let (whole_fleet, sites) = caution(&world.admin).await.unwrap();
    assert!(whole_fleet, "{sites:?}");
    let kinds = ["caution.entered", "caution.widened", "caution.seen"];
    let mut counts = Vec::new();
    for kind in kinds {
        counts.push(count(&app, kind).await);
    }
    assert_eq!(counts, [1, 2, 0]);
}

#[tokio::test]
async fn an_older_agent_counts_for_its_site_until_it_shows_a_seal() {
    let server = Server::start().await;
    let admin = server.admin().await;
    let older = Voice::enrol(&server, &admin, "lab", "older").await;
    let second = Voice::enrol(&server, &admin, "elsewhere", "second").await;
    let known = older.accepted(&invented()).await.unwrap();
    second.accepted(&invented()).await;
    // Two words without a seal are no proof for the fleet.
    assert_eq!(caution(&admin).await, only(&["elsewhere", "lab"]));
    confirm(&admin).await;
    // The updated agent shows the seal of a known event, so a bare word counts no longer.
    assert!(known.seal.is_some());
    older.accepted(&known).await;
    older.refused(Some(&invented())).await;
    assert_eq!(caution(&admin).await, None);
}

#[tokio::test]
async fn a_removed_agent_takes_its_word_back_and_not_its_proof() {
    let server = Server::start().await;
    let (admin, app) = (server.admin().await, &server.app);
    for name in ["a", "b"] {
        let agent = Voice::enrol(&server, &admin, "lab", name).await;
        agent.accepted(&invented()).await;
    }
    remove(&admin, "lab", "a").await;
    assert_eq!(caution(&admin).await, only(&["lab"]), "b is left");
    remove(&admin, "lab", "b").await;
    assert_eq!(caution(&admin).await, None);
    assert_eq!(count(app, "caution.withdrawn").await, 1);
    // A sealed event proves the loss without the agent.
    let agent = Voice::enrol(&server, &admin, "lab", "c").await;
    agent.accepted(&lost(app)).await;
    remove(&admin, "lab", "c").await;
    assert_eq!(caution(&admin).await, only(&["lab"]));
    confirm(&admin).await;
    assert_eq!(caution(&admin).await, None);
}

/// A caution of a site stops the site for all callers, so the end needs the verb for the fleet.
#[tokio::test]
async fn a_remover_without_the_verb_for_cautions_withdraws_no_word() {
    let server = Server::start().await;
    let admin = server.admin().await;
    let of_site = json!({ "name": "of-site", "role": "admin", "expires_in_s": 3600, "scope": { "site": "lab" } });
    let made = admin.post("/v1/tokens", &of_site).await.expect(201).body;
    let of_site = server.with(Some(made["secret"].as_str().unwrap().to_owned()));
    for (name, remover, left) in [("a", &of_site, only(&["lab"])), ("b", &admin, None)] {
        let agent = Voice::enrol(&server, &admin, "lab", name).await;
        agent.accepted(&invented()).await;
        remove(remover, "lab", name).await;
        assert_eq!(caution(&admin).await, left, "{name}");
        if left.is_some() {
            confirm(&admin).await;
        }
    }
}

/// The live image refuses an older plan. The refusal, passed on by the agent, stops the site.
#[tokio::test]
async fn a_live_image_stops_its_own_site() {
    let mut world = World::start(1).await;
    world.settle().await;
    world.claim("n1").await.expect(201);
    let job = world.until_leased("n1", "write_image").await;
    let failure = Failure {
        code: FailureCode::StaleOnNode,
        message: "the node already works on epoch 99, attempt 1".into(),
        retryable: false,
    };
    let outcome = Outcome::Failed { failure };
    world
        .agent
        .report(job.id, job.attempt, outcome)
        .await
        .unwrap();
    assert_eq!(caution(&world.admin).await, only(&["lab"]));
    // A sealed event of a second site: the word of a node is no proof for the fleet.
    let other = Voice::enrol(&world.server, &world.admin, "elsewhere", "other").await;
    other.accepted(&lost(&world.server.app)).await;
    assert_eq!(caution(&world.admin).await, only(&["elsewhere", "lab"]));
}

/// A site's viewer of a caution.
async fn viewer_of(server: &Server, admin: &Caller, site: &str) -> Caller {
    let viewer =
        json!({ "name": site, "role": "viewer", "expires_in_s": 3600, "scope": { "site": site } });
    let made = admin.post("/v1/tokens", &viewer).await.expect(201).body;
    server.with(made["secret"].as_str().map(str::to_owned))
}

/// The banner of a page, and the reason that the API tells, in a text.
async fn shown(reader: &Caller) -> String {
    let page = reader.get("/nodes").await.expect(200).text;
    let (_, banner) = page.split_once("aria-label=\"Caution mode\"").unwrap();
    let (banner, _) = banner.split_once("</section>").unwrap();
    let status = reader.get("/v1/caution").await.expect(200).body;
    let because = status["caution"]["because"].as_str().unwrap();
    format!("{banner} {because}")
}

#[tokio::test]
async fn the_banner_names_the_sites_that_its_reader_may_see() {
    let server = Server::start().await;
    let admin = server.admin().await;
    let first = Voice::enrol(&server, &admin, "lab", "first").await;
    let second = Voice::enrol(&server, &admin, "elsewhere", "second").await;
    let third = json!({ "spec": {} });
    admin.put("/v1/sites/third", &third).await.expect(201);
    let of_lab = viewer_of(&server, &admin, "lab").await;
    let of_third = viewer_of(&server, &admin, "third").await;
    first.accepted(&invented()).await;
    for reader in [&admin, &of_lab] {
        let shown = shown(reader).await;
        assert!(shown.contains("blocked at the site lab until"), "{shown}");
        assert_eq!(shown.matches("agent first").count(), 2, "{shown}");
    }
    let hidden = shown(&of_third).await;
    assert!(
        hidden.contains("blocked at the sites of the witnesses until"),
        "{hidden}"
    );
    assert!(!hidden.contains("first"), "{hidden}");

    second.accepted(&invented()).await;
    let all = shown(&admin).await;
    assert!(
        all.contains("blocked at the sites elsewhere, lab until"),
        "{all}"
    );
    assert!(all.contains("agent first"), "{all}");
    let own = shown(&of_lab).await;
    assert!(own.contains("blocked at the site lab until"), "{own}");
    for other in ["elsewhere", "second", "agent first"] {
        assert!(!own.contains(other), "{own}");
    }
    // Sealed events of both sites: the whole fleet is blocked, and the names stay hidden.
    for voice in [&first, &second] {
        voice.accepted(&lost(&server.app)).await;
    }
    for (reader, is_named) in [(&admin, true), (&of_lab, false), (&of_third, false)] {
        let shown = shown(reader).await;
        assert!(
            shown.contains("blocked in the whole fleet until"),
            "{shown}"
        );
        assert_eq!(shown.contains("agent first"), is_named, "{shown}");
    }
}
