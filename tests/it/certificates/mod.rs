//! Agents' certificates, over the real listener and with the real agent's code. An agent enrols
//! once and renews at half of the certificate's life. Time or removal ends the certificate.

mod elsewhere; // Calls by an agent of a different site
mod enrolment; // The token, the first contact, kept secrets
mod life; // Renewal, expiry, removal, names of removed agents
mod renewals; // Copied identities, and lost answers
mod rotation; // Another authority
mod routes; // Every route of the listener, closed to strangers

use std::sync::Arc;
use std::time::Duration;

use muster_agent::work::client::Client;
use muster_agent::work::client::error::CallError;
use muster_agent::work::identity::Identity;
use muster_core::values::Secret;
use muster_core::wire::PROTOCOL;
use muster_core::wire::calls::Hello;
use serde_json::json;
use tempfile::TempDir;

use crate::support::agents::Door;
use crate::support::server::{Caller, Server};

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
