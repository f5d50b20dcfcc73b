//! Logins by password: delays after failures, an office behind one address, and events of failures.

use jiff::SignedDuration;
use muster_api::tokens::Role;
use muster_server::access::Armed;
use muster_server::auth::break_glass;
use muster_server::auth::passwords::{Lane, count_waiting, turn};
use muster_server::http::listener::files::Shares;
use muster_server::tasks::sign_ins;
use reqwest::Client;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::limits::{LIMIT, PASSWORD, client_at, with_ada};
use crate::support::server::Server;

const HOME: [u8; 4] = [127, 0, 0, 1];
const ELSEWHERE: [u8; 4] = [127, 0, 0, 9];

/// The answer to a login: the status, and `Retry-After`.
#[derive(Debug, PartialEq, Eq)]
struct Login(u16, String);

/// A browser at an address of this host.
#[derive(Clone)]
struct Browser {
    client: Client,
    url: String,
}

impl Browser {
    fn at(url: &str, from: [u8; 4]) -> Self {
        Self {
            client: client_at(from),
            url: url.to_owned(),
        }
    }

    async fn sign_in(&self, name: &str, password: &str) -> Login {
        let form = format!("name={name}&password={}", password.replace(' ', "+"));
        let login = self
            .client
            .post(format!("{}/sign-in", self.url))
            .header("content-type", "application/x-www-form-urlencoded")
            .body(form);
        let answer = login.send().await.unwrap();
        let retry_after = answer.headers().get("retry-after");
        let retry_after = retry_after.map_or("", |value| value.to_str().unwrap());
        Login(answer.status().as_u16(), retry_after.to_owned())
    }

    /// Starts that many logins of ada at once.
    fn sign_in_at_once(&self, count: usize) -> JoinSet<Login> {
        let mut logins = JoinSet::new();
        for _ in 0..count {
            let browser = self.clone();
            logins.spawn(async move { browser.sign_in("ada", PASSWORD).await });
        }
        logins
    }
}

fn is(status: u16) -> Login {
    Login(status, String::new())
}

fn held(retry_after: i64) -> Login {
    Login(429, retry_after.to_string())
}

/// The details of the events of a kind, oldest first.
async fn events(server: &Server, kind: &str) -> Vec<Value> {
    sqlx::query_scalar("SELECT detail FROM events WHERE kind = $1 ORDER BY seq")
        .bind(kind)
        .fetch_all(&server.app.pool)
        .await
        .unwrap()
}

#[tokio::test]
async fn guesses_delay_the_next_guess_and_no_login_from_a_usual_place() {
    let server = Server::start().await;
    with_ada(&server).await;
    let url = server.listen().await;
    let (home, guesser) = (Browser::at(&url, HOME), Browser::at(&url, ELSEWHERE));
    assert_eq!(home.sign_in("ada", PASSWORD).await, is(303));
    for _ in 0..5 {
        assert_eq!(guesser.sign_in("ada", "wrong").await, is(422));
    }
    for delay_s in [1, 2, 4] {
        assert_eq!(guesser.sign_in("ada", PASSWORD).await, held(delay_s));
        let delay = SignedDuration::from_secs(delay_s);
        server.app.clock.advance(delay);
        assert_eq!(guesser.sign_in("ada", "wrong").await, is(422));
    }
    // Another unknown address has the same delay, and the usual place has none.
    let other = Browser::at(&url, [127, 0, 0, 10]);
    assert_eq!(other.sign_in("ada", PASSWORD).await, held(8));
    assert_eq!(home.sign_in("ada", PASSWORD).await, is(303));
    assert_eq!(other.sign_in("ada", PASSWORD).await, held(8));
    server.app.clock.advance(SignedDuration::from_secs(8));
    assert_eq!(other.sign_in("ada", PASSWORD).await, is(303));
    // The login ended the delay, and the failures before do not count.
    assert_eq!(guesser.sign_in("ada", "wrong").await, is(422));
    assert_eq!(guesser.sign_in("ada", PASSWORD).await, is(303));
}

#[tokio::test]
async fn an_unknown_name_is_delayed_like_a_known_one_and_stored_nowhere() {
    let server = Server::start().await;
    with_ada(&server).await;
    let url = server.listen().await;
    let guesser = Browser::at(&url, ELSEWHERE);
    for name in ["ada", "hunter2"] {
        for _ in 0..5 {
            assert_eq!(guesser.sign_in(name, "wrong").await, is(422), "{name}");
        }
        assert_eq!(guesser.sign_in(name, "wrong").await, held(1), "{name}");
    }
    assert_eq!(
        events(&server, "user.sign_in_failed").await,
        Vec::<Value>::new()
    );
    server.app.clock.advance(SignedDuration::from_mins(1));
    sign_ins::tell(&server.app).await.unwrap();
    sign_ins::tell(&server.app).await.unwrap();
    let told = events(&server, "user.sign_in_failed").await;
    let expected = json!([{
        "source": "127.0.0.9",
        "minute": "2026-01-05T08:00:00Z",
        "failures": 10,
        "unknown_names": 5,
        "people": [{ "user": "ada", "reason": "wrong_password", "failures": 5 }],
    }]);
    assert_eq!(json!(told), expected);
    let stored: String = sqlx::query_scalar(
        "SELECT concat((SELECT json_agg(d) FROM sign_in_delays d), (SELECT json_agg(f) FROM sign_in_failures f),
                       (SELECT json_agg(e) FROM events e))",
    )
    .fetch_one(&server.app.pool)
    .await
    .unwrap();
    assert!(stored.contains("unknown/"), "{stored}");
    assert!(!stored.contains("hunter2"), "{stored}");
}

#[tokio::test]
async fn an_administrator_ends_the_delay_of_a_person() {
    let server = Server::start().await;
    with_ada(&server).await;
    let url = server.listen().await;
    let traveller = Browser::at(&url, ELSEWHERE);
    let unlock = "/v1/users/ada/actions/unlock";
    let (admin, viewer) = (server.admin().await, server.caller(Role::Viewer).await);
    admin.post(unlock, &json!({})).await.expect(200);
    assert!(events(&server, "user.unlocked").await.is_empty());
    for _ in 0..5 {
        assert_eq!(traveller.sign_in("ada", "wrong").await, is(422));
    }
    viewer.post(unlock, &json!({})).await.expect(403);
    assert_eq!(traveller.sign_in("ada", PASSWORD).await, held(1));
    let unlocked = admin.post(unlock, &json!({})).await.expect(200).body;
    assert_eq!(unlocked["name"], "ada");
    assert_eq!(traveller.sign_in("ada", PASSWORD).await, is(303));
    let told = events(&server, "user.unlocked").await;
    assert_eq!(json!(told), json!([{ "user": "ada" }]));
}

#[tokio::test]
async fn a_delayed_login_names_the_wait_and_the_ways_out() {
    let server = Server::start().await;
    with_ada(&server).await;
    let url = server.listen().await;
    let traveller = Browser::at(&url, ELSEWHERE);
    assert_eq!(
        Browser::at(&url, HOME).sign_in("ada", PASSWORD).await,
        is(303)
    );
    for _ in 0..5 {
        assert_eq!(traveller.sign_in("ada", "wrong").await, is(422));
    }
    let form = format!("name=ada&password={}", PASSWORD.replace(' ', "+"));
    let login = async |accept: &str| {
        let login = traveller
            .client
            .post(format!("{url}/sign-in"))
            .header("content-type", "application/x-www-form-urlencoded")
            .header("accept", accept)
            .body(form.clone());
        let answer = login.send().await.unwrap();
        assert_eq!(answer.status(), 429);
        answer.text().await.unwrap()
    };
    let problem: Value = serde_json::from_str(&login("application/json").await).unwrap();
    assert_eq!(problem["code"], "login_delayed");
    let page = login("text/html").await;
    for words in [
        "Wait 1 s",
        "muster user unlock NAME",
        "muster admin arm",
        "This account is delayed",
    ] {
        assert!(page.contains(words), "{words}: {page}");
    }
    assert!(!page.contains("a few seconds"), "{page}");
}

#[tokio::test]
async fn arming_on_the_host_ends_the_delays_of_people_with_a_password() {
    let server = Server::start().await;
    with_ada(&server).await;
    let url = server.listen().await;
    let traveller = Browser::at(&url, ELSEWHERE);
    for _ in 0..5 {
        assert_eq!(traveller.sign_in("ada", "wrong").await, is(422));
    }
    assert_eq!(traveller.sign_in("ada", PASSWORD).await, held(1));
    let now = server.app.clock.now();
    let armed = Armed {
        armed_at: now,
        until: now + SignedDuration::from_hours(1),
        by: "root@host1".to_owned(),
        reason: "the provider is away".to_owned(),
    };
    let mut conn = server.app.pool.acquire().await.unwrap();
    break_glass::arm(&mut conn, &server.app.keys.master, &armed)
        .await
        .unwrap();
    assert_eq!(traveller.sign_in("ada", PASSWORD).await, is(303));
}

async fn until(done: impl Fn() -> bool) {
    let wait = async {
        while !done() {
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(LIMIT, wait).await.unwrap();
}

/// The test has both turns at the hash, so every login waits. Of strangers behind an address eight
/// wait; of an office with an earlier login 200 wait, and the first login is answered.
#[tokio::test(flavor = "multi_thread")]
async fn an_office_of_200_people_behind_one_address_signs_in_at_once() {
    let server = Server::start().await;
    with_ada(&server).await;
    let address = server.listen_within(Shares::of(4096).public).await;
    let url = format!("http://{address}");
    let office = Browser::at(&url, HOME);
    assert_eq!(office.sign_in("ada", PASSWORD).await, is(303));
    let kept = turn(Lane::Browser).await.unwrap();
    let given = turn(Lane::Browser).await.unwrap();
    let mut strangers = Browser::at(&url, ELSEWHERE).sign_in_at_once(30);
    for _ in 0..22 {
        let refused = strangers.join_next().await.unwrap().unwrap();
        assert_eq!(refused, held(2));
    }
    assert_eq!(count_waiting(Lane::Stranger), 8);
    let mut people = office.sign_in_at_once(200);
    until(|| count_waiting(Lane::Source) == 200).await;
    assert!(people.try_join_next().is_none());
    // 200 logins wait ahead. The wait of a stranger above was the shortest one.
    assert_eq!(office.sign_in("ada", PASSWORD).await, held(10));
    drop(given);
    assert_eq!(people.join_next().await.unwrap().unwrap(), is(303));
    drop(kept);
}
