//! Tests of calls to a server with a normal answer, a refusal, or an outage.

use std::time::Duration;

use muster_core::ids::{JobId, PermitId};
use muster_core::values::Secret;
use muster_core::wire::calls::RenewJob;
use muster_core::wire::result::Outcome;
use tokio::time::Instant;

use super::server::FakeServer;
use crate::work::backoff;
use crate::work::client::Client;
use crate::work::client::error::CallError;
use crate::work::client::server::{SeenOnNode, Server};

fn renewal() -> RenewJob {
    RenewJob {
        epoch: 7,
        attempt: 1,
        progress: None,
        log: Vec::new(),
        waiting_for: None,
    }
}

const SOON: Duration = Duration::from_secs(10);

#[tokio::test]
async fn a_stale_worker_a_stranger_and_an_absent_server_are_told_apart() {
    let fake = FakeServer::start().await;
    let server = fake.connect();
    let renewal = renewal();
    let renew = || server.renew_job(JobId::new(), &renewal, SOON);
    assert!(!renew().await.unwrap().cancel);
    fake.ledger.lock().unwrap().stale = Some("stale_attempt");
    assert_eq!(renew().await, Err(CallError::StaleAttempt));
    fake.ledger.lock().unwrap().stale = Some("stale_epoch");
    assert_eq!(renew().await, Err(CallError::StaleEpoch));
    fake.ledger.lock().unwrap().stale = Some("other_conflict");
    let Err(CallError::Refused {
        status: 409,
        code,
        detail,
    }) = renew().await
    else {
        panic!("a conflict")
    };
    // The error contains the id of the call as seen by the server, and each call has another id.
    let asked = fake.ledger.lock().unwrap().requests.clone();
    assert_eq!(
        (code.as_str(), detail),
        (
            "other_conflict",
            format!("why (request {})", asked.last().unwrap())
        )
    );
    let different: std::collections::BTreeSet<_> = asked.iter().collect();
    assert_eq!(different.len(), asked.len(), "{asked:?}");
    fake.ledger.lock().unwrap().away_for = 1;
    assert!(renew().await.unwrap_err().retryable());

    let stranger = Server {
        client: Client::on_loopback(&fake.url, &Secret::new("mst_other")).unwrap(),
        epoch: 7,
    };
    let refused = stranger
        .renew_job(JobId::new(), &renewal, SOON)
        .await
        .unwrap_err();
    assert!(
        matches!(refused, CallError::Refused { status: 401, .. }),
        "{refused}"
    );
    let url = fake.url.clone();
    drop(fake);
    let gone = Server {
        client: Client::on_loopback(&url, &Secret::new("x")).unwrap(),
        epoch: 7,
    };
    assert!(
        gone.redeem_permit(JobId::new(), 1, PermitId::new(), None)
            .await
            .unwrap_err()
            .retryable()
    );
}

#[tokio::test]
async fn an_outcome_is_told_until_the_server_is_back() {
    let mut fake = FakeServer::start().await;
    fake.ledger.lock().unwrap().away_for = 2;
    let server = fake.connect();
    let deadline = Instant::now() + SOON;
    backoff::until(deadline, || {
        server.report_outcome(JobId::new(), 1, &Outcome::Cancelled, SeenOnNode::default())
    })
    .await
    .unwrap();
    assert_eq!(fake.outcomes.recv().await, Some(Outcome::Cancelled));
}

#[test]
fn a_token_is_sent_only_by_loopback_or_tls() {
    let token = Secret::new("x");
    for url in [
        "http://10.0.0.5:8081",
        "https://127.0.0.1:8081",
        "http://127.0.0.1.example:1",
        "nonsense",
    ] {
        assert!(Client::on_loopback(url, &token).is_err(), "{url}");
    }
}
