//! Sign-in through an external OpenID provider: `oidc-provider` from npm, with the server as the
//! only client.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use muster_api::tokens::Role;
use muster_core::clock::Clock;
use muster_core::values::Secret;
use muster_server::http::limits::{Rate, Rates};
use muster_server::oidc::{Provider as Relying, Settings};
use reqwest::header::HeaderMap;
use reqwest::{Method, Url};
use serde_json::{Value, json};

use crate::support::postgres;
use crate::support::server::{Caller, Reply, START, Server};

const PUBLIC: &str = "http://127.0.0.1:1";
const LOGOUT: &str = "/sign-in/oidc/logout";
const LOGOUT_EVENT: &str = "http://schemas.openid.net/event/backchannel-logout";

/// The provider's process, killed on drop.
struct Provider {
    process: Child,
    issuer: String,
    http: reqwest::Client,
}

impl Drop for Provider {
    fn drop(&mut self) {
        let _gone_already = self.process.kill();
        let _status = self.process.wait();
    }
}

/// A browser's cookies.
#[derive(Clone, Default)]
struct Jar(BTreeMap<String, String>);

impl Jar {
    fn take(&mut self, headers: &HeaderMap) {
        for cookie in headers.get_all("set-cookie") {
            let pair = cookie.to_str().unwrap().split(';').next().unwrap();
            let (name, value) = pair.split_once('=').unwrap();
            match value.is_empty() {
                true => drop(self.0.remove(name)),
                false => drop(self.0.insert(name.to_owned(), value.to_owned())),
            }
        }
    }

    fn header(&self) -> String {
        self.0
            .iter()
            .map(|(name, value)| format!("{name}={value}"))
            .collect::<Vec<_>>()
            .join("; ")
    }
}

impl Provider {
    /// Starts the provider. Returns `None` without the npm packages; in CI the test fails instead.
    fn start(secret: &str) -> Option<Self> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("oidc");
        if !folder.join("node_modules/oidc-provider").exists() {
            let why = "NOT RUN: npm ci --prefix tests/oidc installs the provider";
            assert!(std::env::var_os("CI").is_none(), "{why}");
            eprintln!("{why}");
            return None;
        }
        let mut node = Command::new("node");
        node.arg(folder.join("provider.mjs"))
            .arg(format!("{PUBLIC}/sign-in/oidc/callback"))
            .arg(secret);
        let mut process = node
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let issuer = lines.next().expect("it says where it listens").unwrap();
        std::thread::spawn(move || lines.map_while(Result::ok).for_each(drop));
        let http = reqwest::Client::builder()
            .redirect(reqwest::redirect::Policy::none())
            .timeout(Duration::from_secs(30))
            .build()
            .unwrap();
        Some(Self {
            process,
            issuer,
            http,
        })
    }

    /// Logs a person in at the provider like a browser redirected to `url`. Returns the path and
    /// query of the redirect back to the server.
    async fn vouch(&self, url: &str, person: &str) -> String {
        let (mut jar, mut url) = (Jar::default(), Url::parse(url).unwrap());
        for _ in 0..5 {
            if url.path().starts_with("/interaction/") {
                url.set_query(Some(&format!("as={person}")));
            }
            let reply = self
                .http
                .get(url.clone())
                .header("cookie", jar.header())
                .send()
                .await
                .unwrap();
            jar.take(reply.headers());
            let location = reply.headers().get("location");
            let location = location
                .unwrap_or_else(|| panic!("{url} leads nowhere"))
                .to_str()
                .unwrap();
            url = url.join(location).unwrap();
            if url.as_str().starts_with(PUBLIC) {
                return format!("{}?{}", url.path(), url.query().unwrap());
            }
        }
        panic!("no way back from {url}");
    }

    /// Returns a logout token with the given claims, signed by the provider.
    async fn sign(&self, claims: &Value) -> String {
        let claims = claims.to_string();
        let query = [("claims", claims.as_str())];
        self.ask("logout-token", &query).await
    }

    async fn ask(&self, path: &str, query: &[(&str, &str)]) -> String {
        let mut url = Url::parse(&format!("{}/{path}", self.issuer)).unwrap();
        url.query_pairs_mut().extend_pairs(query);
        let reply = self.http.get(url).send().await.unwrap();
        assert!(reply.status().is_success(), "{path}");
        reply.text().await.unwrap()
    }

    /// Returns the claims of a logout token about a person, issued now by the server's clock.
    fn logout_of(&self, server: &Server, id: &str, person: &str) -> Value {
        json!({
            "iss": self.issuer, "aud": "muster", "iat": server.app.clock.now().as_second(), "jti": id,
            "events": { LOGOUT_EVENT: {} }, "sub": person,
        })
    }

    async fn server(&self, secret: &str) -> Server {
        let clock = Clock::manual(START.parse().unwrap());
        let roles = vec![
            ("fleet-admins".to_owned(), Role::Admin),
            ("watchers".to_owned(), Role::Viewer),
        ];
        let settings = Settings {
            issuer: self.issuer.clone(),
            client_id: "muster".into(),
            client_secret: Secret::new(secret),
            public_url: PUBLIC.into(),
            roles,
        };
        let provider = Arc::new(Relying::new(settings).unwrap());
        Server::vouched(postgres::database().await, clock, Some(provider)).await
    }
}

/// Begins a login. Returns the browser's cookies and the URL of the redirect.
async fn begin(server: &Server, jar: &Jar) -> (Jar, String) {
    let mut jar = jar.clone();
    let browser = server.nobody().header("cookie", &jar.header());
    let reply = browser.get("/sign-in/oidc?next=/racks").await.expect(303);
    jar.take(&reply.headers);
    (jar, reply.header("location").to_owned())
}

async fn come_back(server: &Server, jar: &Jar, path: &str) -> (Jar, Reply) {
    let mut jar = jar.clone();
    let reply = server
        .nobody()
        .header("cookie", &jar.header())
        .get(path)
        .await;
    jar.take(&reply.headers);
    (jar, reply)
}

async fn sign_in(server: &Server, provider: &Provider, person: &str) -> Jar {
    let (jar, url) = begin(server, &Jar::default()).await;
    let back = provider.vouch(&url, person).await;
    let (jar, reply) = come_back(server, &jar, &back).await;
    assert_eq!(reply.expect(303).header("location"), "/racks");
    jar
}

#[tokio::test]
async fn people_get_the_role_of_their_groups_and_keep_it_no_longer_than_a_login() {
    let Some(provider) = Provider::start("s3cret") else {
        return;
    };
    let server = provider.server("s3cret").await;
    let page = server.nobody().get("/sign-in").await.expect(200);
    assert!(
        page.text.contains("href=\"/sign-in/oidc?next="),
        "{}",
        page.text
    );
    for (person, sites, tokens) in [("ada", 200, 200), ("bob", 200, 403), ("eve", 403, 403)] {
        let jar = sign_in(&server, &provider, person).await;
        assert_eq!(
            jar.0.keys().collect::<Vec<_>>(),
            ["muster_session"],
            "and nothing is left of the way"
        );
        let browser = server.nobody().header("cookie", &jar.header());
        assert_eq!(browser.get("/v1/nodes").await.status, sites, "{person}");
        assert_eq!(browser.get("/v1/tokens").await.status, tokens, "{person}");
    }
    // A second login finds the person's row, and the row accepts no password. The server ignores a
    // new name at the provider. A renamed person could otherwise approve a request made under the
    // old name.
    sign_in(&server, &provider, "ada").await;
    let rename = format!("{}/rename?person=ada&to=chief", provider.issuer);
    provider.http.get(rename).send().await.unwrap();
    sign_in(&server, &provider, "ada").await;
    let known: Vec<(String, String)> =
        sqlx::query_as("SELECT name, subject FROM users ORDER BY name")
            .fetch_all(&server.app.pool)
            .await
            .unwrap();
    let subjects: Vec<&str> = known.iter().map(|(_, subject)| subject.as_str()).collect();
    assert_eq!(subjects, ["ada", "bob", "eve"]);
    assert_eq!(known[0].0, "ada@127.0.0.1");
    let form = b"name=ada%40127.0.0.1&password=".to_vec();
    let typed = server
        .nobody()
        .header("content-type", "application/x-www-form-urlencoded");
    assert_eq!(
        typed
            .send(reqwest::Method::POST, "/sign-in", form)
            .await
            .status,
        422
    );
    let seen: i64 = sqlx::query_scalar("SELECT count(*) FROM events WHERE kind = 'user.signed_in'")
        .fetch_one(&server.app.pool)
        .await
        .unwrap();
    assert_eq!(seen, 5);
}

#[tokio::test]
async fn only_the_browser_that_began_a_login_ends_it_and_only_once() {
    let Some(provider) = Provider::start("s3cret") else {
        return;
    };
    let server = provider.server("s3cret").await;
    let (jar, url) = begin(&server, &Jar::default()).await;
    for wanted in [
        "code_challenge_method=S256",
        "code_challenge=",
        "nonce=",
        "state=",
        "response_type=code",
    ] {
        assert!(url.contains(wanted), "{url}");
    }
    let back = provider.vouch(&url, "ada").await;
    // A stranger's browser fails, without a login and with a login under way.
    let (other, _) = begin(&server, &Jar::default()).await;
    for stranger in [Jar::default(), other] {
        let (after, reply) = come_back(&server, &stranger, &back).await;
        assert!(
            reply.status == 422 && !after.0.contains_key("muster_session"),
            "{}",
            reply.text
        );
        assert!(
            reply.text.contains("identity provider failed"),
            "{}",
            reply.text
        );
    }
    let stolen = back.replace("state=", "state=0");
    assert_eq!(come_back(&server, &jar, &stolen).await.1.status, 422);
    let (after, reply) = come_back(&server, &jar, &back).await;
    reply.expect(303);
    assert!(after.0.contains_key("muster_session"));
    assert_eq!(
        come_back(&server, &jar, &back).await.1.status,
        422,
        "a code is worth one login"
    );
    let refused = "/sign-in/oidc/callback?error=access_denied&state=0";
    assert_eq!(come_back(&server, &jar, refused).await.1.status, 422);
}

#[tokio::test]
async fn a_login_ends_the_session_that_the_browser_had() {
    let Some(provider) = Provider::start("s3cret") else {
        return;
    };
    let server = provider.server("s3cret").await;
    let first = sign_in(&server, &provider, "bob").await;
    let (jar, url) = begin(&server, &first).await;
    let back = provider.vouch(&url, "ada").await;
    let (second, _) = come_back(&server, &jar, &back).await;
    assert_ne!(first.0["muster_session"], second.0["muster_session"]);
    assert_eq!(
        server
            .nobody()
            .header("cookie", &first.header())
            .get("/v1/sites")
            .await
            .status,
        401
    );
    server
        .nobody()
        .header("cookie", &second.header())
        .get("/v1/sites")
        .await
        .expect(200);
}

#[tokio::test]
async fn keys_rotate_under_a_running_server() {
    let Some(provider) = Provider::start("s3cret") else {
        return;
    };
    let server = provider.server("s3cret").await;
    sign_in(&server, &provider, "ada").await;
    provider
        .http
        .get(format!("{}/rotate", provider.issuer))
        .send()
        .await
        .unwrap();
    sign_in(&server, &provider, "ada").await;
    let wrong = provider.server("guess").await;
    let (jar, url) = begin(&wrong, &Jar::default()).await;
    let back = provider.vouch(&url, "ada").await;
    assert_eq!(come_back(&wrong, &jar, &back).await.1.status, 422);
}

fn browser_of(server: &Server, jar: &Jar) -> Caller {
    server.nobody().header("cookie", &jar.header())
}

/// Sends a logout token like the provider.
async fn send_logout(server: &Server, token: &str) -> Reply {
    let provider = server
        .nobody()
        .header("content-type", "application/x-www-form-urlencoded");
    let form = format!("logout_token={token}");
    provider.send(Method::POST, LOGOUT, form.into_bytes()).await
}

async fn count_logouts(server: &Server) -> i64 {
    sqlx::query_scalar("SELECT count(*) FROM events WHERE kind = 'user.signed_out'")
        .fetch_one(&server.app.pool)
        .await
        .unwrap()
}

#[tokio::test]
async fn a_logout_at_the_provider_ends_sessions_and_tokens_until_the_next_login() {
    let Some(provider) = Provider::start("s3cret") else {
        return;
    };
    let server = provider.server("s3cret").await;
    let (ada, bob) = (
        browser_of(&server, &sign_in(&server, &provider, "ada").await),
        browser_of(&server, &sign_in(&server, &provider, "bob").await),
    );
    let body = json!({ "name": "of-ada", "role": "viewer", "expires_in_s": 3600 });
    let made = ada
        .header("sec-fetch-site", "same-origin")
        .post("/v1/tokens", &body)
        .await
        .expect(201);
    let token = server.with(made.body["secret"].as_str().map(str::to_owned));
    for caller in [&ada, &token] {
        caller.get("/v1/sites").await.expect(200);
    }
    let logout = provider.logout_of(&server, "first", "ada");
    let sent = provider.sign(&logout).await;
    let reply = send_logout(&server, &sent).await.expect(200);
    assert_eq!(reply.header("cache-control"), "no-store");
    assert_eq!(ada.get("/v1/sites").await.status, 401);
    let refused = token.get("/v1/sites").await;
    assert_eq!(refused.problem(), (401, "sign_in_again", ""));
    assert!(
        refused.text.contains("signed out at the identity provider"),
        "{}",
        refused.text
    );
    bob.get("/v1/sites").await.expect(200);
    assert_eq!(count_logouts(&server).await, 1);
    // The next login restores the rights. The server refuses a repeated logout token.
    let ada = browser_of(&server, &sign_in(&server, &provider, "ada").await);
    let again = send_logout(&server, &sent).await.expect(400);
    assert_eq!(again.body["error"], "invalid_request");
    for caller in [&ada, &token] {
        caller.get("/v1/sites").await.expect(200);
    }
    // A logout of a person without a login succeeds.
    let stranger = provider.logout_of(&server, "second", "nobody-here");
    send_logout(&server, &provider.sign(&stranger).await)
        .await
        .expect(200);
    assert_eq!(count_logouts(&server).await, 1);
}

#[tokio::test]
async fn a_logout_of_a_session_ends_the_logins_of_its_person() {
    let Some(provider) = Provider::start("s3cret") else {
        return;
    };
    let server = provider.server("s3cret").await;
    let (ada, bob) = (
        browser_of(&server, &sign_in(&server, &provider, "ada").await),
        browser_of(&server, &sign_in(&server, &provider, "bob").await),
    );
    let session = provider.ask("session", &[("person", "ada")]).await;
    let mut logout = provider.logout_of(&server, "first", "ada");
    logout["sub"] = Value::Null;
    for (id, sid, status) in [("first", "unknown", 200), ("second", session.as_str(), 401)] {
        logout["sid"] = sid.into();
        logout["jti"] = id.into();
        send_logout(&server, &provider.sign(&logout).await)
            .await
            .expect(200);
        assert_eq!(ada.get("/v1/sites").await.status, status, "{sid}");
    }
    bob.get("/v1/sites").await.expect(200);
    // The server finds the provider's session after the row in `sessions` is deleted.
    let delete = "DELETE FROM sessions";
    sqlx::query(delete).execute(&server.app.pool).await.unwrap();
    logout["jti"] = "third".into();
    send_logout(&server, &provider.sign(&logout).await)
        .await
        .expect(200);
    assert_eq!(count_logouts(&server).await, 2);
}

#[tokio::test]
async fn a_token_that_is_no_logout_token_of_the_provider_ends_nothing() {
    let Some(provider) = Provider::start("s3cret") else {
        return;
    };
    let server = provider.server("s3cret").await;
    let ada = browser_of(&server, &sign_in(&server, &provider, "ada").await);
    let good = provider.logout_of(&server, "first", "ada");
    let minutes_ago = server.app.clock.now().as_second() - 301;
    for (member, value) in [
        ("iss", json!("https://login.example")),
        ("aud", json!("another-client")),
        ("iat", json!(minutes_ago)),
        ("nonce", json!("n")),
        ("events", json!({})),
        ("jti", Value::Null),
        ("sub", Value::Null),
    ] {
        let mut bad = good.clone();
        bad[member] = value;
        let reply = send_logout(&server, &provider.sign(&bad).await).await;
        assert_eq!(reply.status, 400, "{member}");
        assert_eq!(reply.body["error"], "invalid_request", "{member}");
    }
    // Claims about bob with the signature of the token about ada.
    let signed = provider.sign(&good).await;
    let other = provider
        .sign(&provider.logout_of(&server, "x", "bob"))
        .await;
    let (head, _) = other.rsplit_once('.').unwrap();
    let (_, signature) = signed.rsplit_once('.').unwrap();
    send_logout(&server, &format!("{head}.{signature}"))
        .await
        .expect(400);
    send_logout(&server, "").await.expect(400);
    let json = server.nobody().post(LOGOUT, &json!({})).await;
    assert_eq!(json.status, 400);
    ada.get("/v1/sites").await.expect(200);
    // The server refuses a token signed by a withdrawn key.
    provider.ask("rotate", &[]).await;
    send_logout(&server, &signed).await.expect(400);
    ada.get("/v1/sites").await.expect(200);
    send_logout(&server, &provider.sign(&good).await)
        .await
        .expect(200);
    assert_eq!(ada.get("/v1/sites").await.status, 401);
    // A server without a provider has no logout endpoint.
    let alone = Server::start().await;
    assert_eq!(send_logout(&alone, &signed).await.status, 404);
}

#[tokio::test]
async fn refused_logout_tokens_are_paid_by_their_source() {
    // No provider listens at the issuer: the server refuses malformed tokens before any call.
    let settings = Settings {
        issuer: "http://127.0.0.1:9".into(),
        client_id: "muster".into(),
        client_secret: Secret::new("s3cret"),
        public_url: PUBLIC.into(),
        roles: Vec::new(),
    };
    let relying = Arc::new(Relying::new(settings).unwrap());
    let clock = Clock::manual(START.parse().unwrap());
    let address = Rate {
        burst: 20.0,
        per_s: 2.0,
    };
    let rates = Rates {
        address,
        office: address,
        refused: 8.0,
        ..Rates::default()
    };
    let server = Server::vouched(postgres::database().await, clock, Some(relying)).await;
    let server = server.limited(rates);
    let url = server.listen().await;
    let http = reqwest::Client::builder()
        .timeout(Duration::from_secs(30))
        .no_proxy()
        .build()
        .unwrap();
    let mut answers = Vec::new();
    for _ in 0..4 {
        let sent = http
            .post(format!("{url}{LOGOUT}"))
            .header("content-type", "application/x-www-form-urlencoded")
            .body("logout_token=a.b.c")
            .send()
            .await;
        answers.push(sent.unwrap().status().as_u16());
    }
    // A refused request costs 9 of 20: 1 for the request and 8 for the refusal.
    assert_eq!(answers, [400, 400, 400, 429]);
}
