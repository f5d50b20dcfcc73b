//! How much a caller may send: by its credential, and by its address where the credential is refused.

use jiff::SignedDuration;
use muster_api::tokens::Role;
use muster_server::http::limits::{Rate, Rates};

use crate::support::server::Server;

fn rates() -> Rates {
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
