//! Rate limits of callers: by credential, or by address after a refused credential.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::poll;
use jiff::SignedDuration;
use muster_api::tokens::Role;
use muster_core::values::Secret;
use muster_server::auth::passwords::{self, Lane, count_waiting, turn};
use muster_server::db;
use muster_server::http::limits::{Rate, Rates};
use reqwest::Client;
use tokio::task::JoinSet;

use crate::support::server::Server;

pub(crate) const PASSWORD: &str = "a long password";
/// A bound beyond the duration of every step.
pub(crate) const LIMIT: Duration = Duration::from_secs(120);

pub(crate) fn rates() -> Rates {
    let (credential, address) = (
        Rate {
            burst: 3.0,
            per_s: 1.0,
        },
        Rate {
            burst: 20.0,
            per_s: 2.0,
        },
    );
    Rates {
        credential,
        address,
        office: address,
        refused: 8.0,
        ..Rates::default()
    }
}

#[tokio::test]
async fn who_sends_too_much_is_told_how_long_to_wait() {
    let server = Server::start().await.limited(rates());
    let (one, other) = (server.admin().await, server.caller(Role::Viewer).await);
    for left in ["2", "1", "0"] {
        let reply = one.get("/v1/sites").await.expect(200);
        assert_eq!(
            reply.header("ratelimit"),
            format!("\"default\";r={left};t=3")
        );
        assert_eq!(reply.header("ratelimit-policy"), "\"default\";q=3;w=3");
    }
    let refused = one.get("/v1/sites").await;
    assert_eq!(refused.problem(), (429, "too_many_requests", ""));
    assert_eq!(
        (refused.header("retry-after"), &refused.body["retryable"]),
        ("1", &true.into())
    );
    other.get("/v1/sites").await.expect(200);
    server.app.clock.advance(SignedDuration::from_secs(1));
    one.get("/v1/sites").await.expect(200);
    assert_eq!(one.get("/v1/sites").await.status, 429);
}

#[tokio::test]
async fn who_guesses_is_held_by_the_address() {
    let server = Server::start().await.limited(rates());
    let url = format!("{}/v1/sites", server.listen().await);
    let client = reqwest::Client::builder().build().unwrap();
    let mut answers = Vec::new();
    for guess in 0..4 {
        let reply = client
            .get(&url)
            .bearer_auth(format!("mst_{guess}"))
            .send()
            .await
            .unwrap();
        answers.push(reply.status().as_u16());
    }
    // Nine of twenty for each: one request and eight more for being refused.
    assert_eq!(answers, [401, 401, 401, 429]);
    server.app.clock.advance(SignedDuration::from_secs(10));
    assert_eq!(client.get(&url).send().await.unwrap().status(), 401);
}

#[tokio::test]
async fn who_is_known_is_not_kept_out_by_others_who_guess_at_the_same_address() {
    let server = Server::start().await.limited(rates());
    let url = format!("{}/v1/sites", server.listen().await);
    let (known, fresh) = (server.admin().await, server.admin().await);
    let client = reqwest::Client::builder().build().unwrap();
    let ask = async |token: &str| {
        client
            .get(&url)
            .bearer_auth(token)
            .send()
            .await
            .unwrap()
            .status()
            .as_u16()
    };
    let (known, fresh) = (known.token.unwrap(), fresh.token.unwrap());
    assert_eq!(ask(&known).await, 200);
    for answer in [401, 401, 401, 429] {
        assert_eq!(ask("mst_guess").await, answer);
    }
    assert_eq!(
        ask(&known).await,
        200,
        "behind a proxy everybody has one address"
    );
    assert_eq!(
        ask(&fresh).await,
        429,
        "whoever was never known is one of those who guess"
    );
}

/// A client at an address of this host. Redirects are not followed.
pub(crate) fn client_at(from: [u8; 4]) -> Client {
    let client = Client::builder()
        .local_address(IpAddr::from(from))
        .redirect(reqwest::redirect::Policy::none())
        .timeout(LIMIT)
        .no_proxy();
    client.build().unwrap()
}

async fn ask(client: &Client, url: &str, token: &str) -> u16 {
    let answer = client.get(url).bearer_auth(token).send().await;
    answer.unwrap().status().as_u16()
}

/// A login: the answer, and the cookie of an opened session.
struct Login {
    status: u16,
    retry_after: String,
    cookie: String,
}

async fn sign_in(client: &Client, url: &str, password: &str, cookie: &str) -> Login {
    let answer = client
        .post(format!("{url}/sign-in"))
        .header("content-type", "application/x-www-form-urlencoded")
        .header("cookie", cookie)
        .body(format!("name=ada&password={}", password.replace(' ', "+")));
    let answer = answer.send().await.unwrap();
    let header = |name: &str| {
        let value = answer.headers().get(name);
        value.map_or("", |value| value.to_str().unwrap()).to_owned()
    };
    Login {
        status: answer.status().as_u16(),
        retry_after: header("retry-after"),
        cookie: header("set-cookie").split(';').next().unwrap().to_owned(),
    }
}

pub(crate) async fn with_ada(server: &Server) {
    let hash = passwords::hash(Secret::new(PASSWORD)).await.unwrap();
    let mut conn = server.app.pool.acquire().await.unwrap();
    db::users::insert(&mut conn, "ada", &hash, "operator", server.app.clock.now())
        .await
        .unwrap();
    server.seal_rows().await;
}

#[tokio::test]
async fn guesses_are_paid_in_full_before_the_next_one() {
    let server = Server::start().await.limited(rates());
    let url = server.listen().await;
    let client = client_at([127, 0, 0, 1]);
    let mut at_once = JoinSet::new();
    for _ in 0..20 {
        let (client, url) = (client.clone(), url.clone());
        at_once.spawn(async move { sign_in(&client, &url, "wrong", "").await.status });
    }
    let answers = at_once.join_all().await;
    let guessed = answers.iter().filter(|status| **status == 422).count();
    assert_eq!(guessed, 3, "three times nine of twenty: {answers:?}");
    let sites = format!("{url}/v1/sites");
    // The address owes seven, and has two more each second.
    for answer in [429, 429, 429, 401, 429] {
        server.app.clock.advance(SignedDuration::from_secs(1));
        assert_eq!(ask(&client, &sites, "mst_later").await, answer);
    }
}

#[tokio::test]
async fn a_program_that_repeats_a_wrong_token_pays_by_itself() {
    let mut rates = rates();
    (rates.credential.burst, rates.address.burst) = (60.0, 120.0);
    let server = Server::start().await.limited(rates);
    let url = format!("{}/v1/sites", server.listen().await);
    let client = client_at([127, 0, 0, 1]);
    let mut refused = 0;
    while ask(&client, &url, "mst_revoked").await == 401 {
        refused += 1;
    }
    // Ten at the cost of the address, then six at nine tokens out of the fifty left to the token.
    assert_eq!(refused, 16);
    let fresh = server.admin().await.token.unwrap();
    assert_eq!(ask(&client, &url, &fresh).await, 200);
}

#[tokio::test]
async fn an_address_that_owes_keeps_out_neither_its_people_nor_its_probes() {
    let server = Server::start().await.limited(rates());
    with_ada(&server).await;
    let url = server.listen().await;
    let sites = format!("{url}/v1/sites");
    let client = client_at([127, 0, 0, 1]);
    let former = sign_in(&client, &url, PASSWORD, "").await;
    assert_eq!(former.status, 303);
    for guess in 0..3 {
        assert_eq!(ask(&client, &sites, &format!("mst_{guess}")).await, 401);
    }
    assert_eq!(ask(&client, &sites, "mst_3").await, 429);
    assert_eq!(sign_in(&client, &url, PASSWORD, "").await.status, 429);
    let health = client.get(format!("{url}/healthz")).send().await.unwrap();
    assert_eq!(health.status(), 200);
    // A browser with a former session, and the new session.
    let again = sign_in(&client, &url, PASSWORD, &former.cookie).await;
    assert_eq!(again.status, 303);
    let page = client.get(&sites).header("cookie", &again.cookie);
    assert_eq!(page.send().await.unwrap().status(), 200);
    // Guesses of the browser are paid as well.
    let wrong = sign_in(&client, &url, "wrong", &again.cookie).await;
    assert_eq!(wrong.status, 422);
    let wrong = sign_in(&client, &url, "wrong", &again.cookie).await;
    assert_eq!(wrong.status, 429);
}

/// Guessing logins from ten addresses at once, until dropped.
struct Flood {
    /// Answers after a hash.
    hashed: Arc<AtomicUsize>,
    /// Refusals by a full queue.
    sent_away: Arc<AtomicUsize>,
    _callers: JoinSet<()>,
}

impl Flood {
    fn start(url: &str) -> Self {
        let (hashed, sent_away) = (Arc::<AtomicUsize>::default(), Arc::default());
        let mut callers = JoinSet::new();
        for number in 0..30 {
            let client = client_at([127, 0, 2, 1 + number % 10]);
            let (url, hashed, sent_away) = (
                url.to_owned(),
                Arc::clone(&hashed),
                Arc::<AtomicUsize>::clone(&sent_away),
            );
            callers.spawn(async move {
                loop {
                    let login = sign_in(&client, &url, "wrong", "").await;
                    match (login.status, &*login.retry_after) {
                        (422, _) => hashed.fetch_add(1, Ordering::SeqCst),
                        (429, _) => sent_away.fetch_add(1, Ordering::SeqCst),
                        other => panic!("{other:?}"),
                    };
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            });
        }
        Self {
            hashed,
            sent_away,
            _callers: callers,
        }
    }
}

/// Logins from ten addresses fill the lane of strangers. A login from a source, or in a browser, that
/// signed in before overtakes all of them. The test has both turns at the hash, and gives one away.
#[tokio::test(flavor = "multi_thread")]
async fn a_flood_of_logins_does_not_keep_out_people_who_signed_in_before() {
    let server = Server::start().await;
    with_ada(&server).await;
    let url = server.listen().await;
    let home = client_at([127, 0, 0, 1]);
    let before = sign_in(&home, &url, PASSWORD, "").await;
    assert_eq!(before.status, 303);
    let kept = turn(Lane::Browser).await.unwrap();
    let mut given = turn(Lane::Browser).await.unwrap();
    let flood = Flood::start(&url);
    let until = async |done: &dyn Fn() -> bool| {
        let wait = async {
            while !done() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(LIMIT, wait).await.unwrap();
    };
    until(&|| flood.sent_away.load(Ordering::SeqCst) >= 10).await;
    let metrics = server.admin().await.get("/metrics").await.expect(200).text;
    let waiting = |lane: &str, count| {
        let line = format!("muster_logins_waiting{{lane=\"{lane}\"}} {count}\n");
        metrics.contains(&line)
    };
    assert!(waiting("browser", 0) && waiting("source", 0), "{metrics}");
    assert!(!waiting("stranger", 0), "{metrics}");
    assert!(metrics.contains("{lane=\"stranger\"}"), "{metrics}");
    let sites = format!("{url}/v1/sites");
    for (lane, from, cookie) in [
        (Lane::Source, [127, 0, 0, 1], ""),
        (Lane::Browser, [127, 0, 2, 1], &*before.cookie),
    ] {
        let (client, url, cookie) = (client_at(from), url.clone(), cookie.to_owned());
        let login = tokio::spawn(async move { sign_in(&client, &url, PASSWORD, &cookie).await });
        until(&|| count_waiting(lane) == 1).await;
        // The turn after the login is the test's as well.
        let mut behind = Box::pin(turn(lane));
        assert!(poll!(&mut behind).is_pending());
        drop(given);
        let login = login.await.unwrap();
        assert_eq!(login.status, 303, "from {from:?}");
        assert_eq!(flood.hashed.load(Ordering::SeqCst), 0, "from {from:?}");
        let page = home.get(&sites).header("cookie", &login.cookie);
        assert_eq!(page.send().await.unwrap().status(), 200);
        given = behind.await.unwrap();
    }
    drop((kept, given));
    until(&|| flood.hashed.load(Ordering::SeqCst) > 0).await;
}
