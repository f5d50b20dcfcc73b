//! The API's calls, in the same form for every kind. Claims and tokens are created by calls
//! different from other objects.

use std::future::Future;
use std::time::Duration;

use muster_api::claims::ClaimSpec;
use muster_api::client::{Client, ClientError, Precondition};
use muster_api::tokens::Token;
use muster_core::values::Secret;
use serde_json::{Map, Value as Json, json};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::kinds::{Fixed, Kind};
use crate::value::state_of;

/// The largest page allowed by the server.
const PAGE: &str = "1000";
/// Pause before a retry.
const PAUSE: Duration = Duration::from_millis(500);
/// Maximum length of a single wait for an operation. A stop request takes effect after the wait at
/// the latest.
const POLL: Duration = Duration::from_secs(5);

/// The server, and the stop request of Terraform.
#[derive(Clone, Debug)]
pub(crate) struct Remote {
    pub(crate) client: Client,
    pub(crate) stop: watch::Receiver<bool>,
}

/// Result of a wait.
#[derive(Debug)]
pub(crate) enum Waited {
    Reached(Json),
    /// The goal is not reached yet, or never without an operator: the current object and the
    /// reason.
    NotReached(Json, String),
}

impl Remote {
    /// Retries a call while the server is away or returns a listed error code, until the deadline.
    pub(crate) async fn patiently<T, F>(
        &self,
        deadline: Instant,
        codes: &[&str],
        call: impl Fn() -> F,
    ) -> Result<T, ClientError>
    where
        F: Future<Output = Result<T, ClientError>>,
    {
        loop {
            let refused = match call().await {
                Ok(answer) => return Ok(answer),
                Err(refused) => refused,
            };
            let again = refused.away() || codes.iter().any(|code| refused.is(code));
            if !again || !self.pause(deadline).await {
                return Err(refused);
            }
        }
    }

    /// Sleeps briefly. Returns `false` after the deadline or a stop request of Terraform.
    pub(crate) async fn pause(&self, deadline: Instant) -> bool {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() || *self.stop.borrow() {
            return false;
        }
        tokio::time::sleep(PAUSE.min(left)).await;
        true
    }

    /// Returns the object with the name or id.
    pub(crate) async fn find(&self, kind: &Kind, key: &str) -> Result<Option<Json>, ClientError> {
        if kind.word == "token" {
            let found = match self.client.get_value(&["tokens", key], &[]).await {
                Ok(found) => found,
                Err(error) if error.status() == Some(404) => return Ok(None),
                Err(error) => return Err(error),
            };
            let token: Token = serde_json::from_value(found).map_err(ClientError::Unreadable)?;
            return Ok(token.revoked_at.is_none().then(|| as_object(token)));
        }
        match self.client.get_value(&[kind.collection, key], &[]).await {
            Ok(object) => Ok(Some(object)),
            Err(error) if error.status() == Some(404) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Returns all objects matching the filter, page by page.
    pub(crate) async fn list(&self, kind: &Kind, filter: &str) -> Result<Vec<Json>, ClientError> {
        if kind.word == "token" {
            let tokens = self.client.list_tokens().await?.items;
            return Ok(tokens
                .into_iter()
                .filter(|token| token.revoked_at.is_none())
                .map(as_object)
                .collect());
        }
        let mut all = Vec::new();
        let mut token = String::new();
        loop {
            let mut query = vec![("limit", PAGE)];
            query.extend(
                [("filter", filter), ("page_token", &token)]
                    .into_iter()
                    .filter(|(_, value)| !value.is_empty()),
            );
            let page = self.client.get_value(&[kind.collection], &query).await?;
            all.extend(page["items"].as_array().cloned().unwrap_or_default());
            match page["next_page_token"].as_str() {
                Some(next) => token = next.to_owned(),
                None => return Ok(all),
            }
        }
    }

    /// Creates an object that must not exist yet.
    pub(crate) async fn create(
        &self,
        kind: &Kind,
        name: &str,
        draft: &Json,
    ) -> Result<Json, ClientError> {
        match kind.word {
            "claim" => {
                self.client
                    .post_value(&["claims"], &json!({ "name": name, "spec": draft["spec"] }))
                    .await
            }
            _ => {
                self.client
                    .put_value(&[kind.collection, name], draft, Precondition::Absent)
                    .await
            }
        }
    }

    /// Creates a token. The server returns the secret only in the response to the creation.
    pub(crate) async fn create_token(
        &self,
        name: &str,
        spec: &Json,
    ) -> Result<(Json, Secret), ClientError> {
        let mut body = spec.clone();
        body["name"] = name.into();
        let mut made = self.client.post_value(&["tokens"], &body).await?;
        let secret = Secret::new(made["secret"].as_str().unwrap_or_default());
        let token =
            serde_json::from_value(made["token"].take()).map_err(ClientError::Unreadable)?;
        Ok((as_object(token), secret))
    }

    /// Replaces exactly the planned generation. For a claim, only the changeable members are sent.
    pub(crate) async fn replace(
        &self,
        kind: &Kind,
        id: &str,
        generation: i64,
        draft: &Json,
    ) -> Result<Json, ClientError> {
        if let Fixed::NameAndSpecBut(free) = kind.fixed {
            let spec: Map<String, Json> = free
                .iter()
                .map(|member| ((*member).to_owned(), draft["spec"][*member].clone()))
                .collect();
            let (patch, precondition) = (
                json!({ "spec": spec }),
                Precondition::Generation(generation),
            );
            let patched = self
                .client
                .patch::<ClaimSpec>(id, &patch, precondition)
                .await?;
            return serde_json::to_value(patched).map_err(ClientError::Unreadable);
        }
        self.client
            .put_value(
                &[kind.collection, id],
                draft,
                Precondition::Generation(generation),
            )
            .await
    }

    /// Renames exactly the planned generation, and returns the generation after the rename.
    pub(crate) async fn rename(
        &self,
        kind: &Kind,
        id: &str,
        generation: i64,
        name: &str,
    ) -> Result<i64, ClientError> {
        let found = self.client.get_value(&[kind.collection, id], &[]).await?;
        // A rename completed by a killed apply is not repeated.
        if found["name"].as_str() != Some(name) {
            if found["generation"].as_i64() != Some(generation) {
                return Err(ClientError::Usage(
                    "It was changed in the meantime: plan again.".into(),
                ));
            }
            self.client
                .post_value(
                    &[kind.collection, id, "actions", "rename"],
                    &json!({ "name": name }),
                )
                .await?;
        }
        Ok(generation + 1)
    }

    /// Removes exactly the planned generation. For a claim, removal starts the release, which takes
    /// time.
    pub(crate) async fn remove(
        &self,
        kind: &Kind,
        id: &str,
        generation: i64,
        erase: Erase,
    ) -> Result<(), ClientError> {
        match (kind.word, erase) {
            ("claim", Erase::Now) => self.client.erase_claim(id, generation).await.map(drop),
            ("token", _) => self.client.revoke_token(id).await,
            _ => self
                .client
                .delete_value(&[kind.collection, id], generation)
                .await
                .map(drop),
        }
    }

    /// Waits until the object reaches the goal, is stuck, or the time is up.
    pub(crate) async fn wait(
        &self,
        kind: &Kind,
        mut object: Json,
        goal: &str,
        deadline: Instant,
    ) -> Result<Waited, ClientError> {
        let Some(wait) = kind.wait else {
            return Ok(Waited::Reached(object));
        };
        let id = object["id"].as_str().unwrap_or_default().to_owned();
        loop {
            if wait.reached(&object, goal) {
                return Ok(Waited::Reached(object));
            }
            let stuck = wait.is_stuck(&object);
            if stuck || !self.pause(deadline).await {
                let why = self.why(kind, &object).await;
                let what = if stuck {
                    "and stays so until somebody acts"
                } else {
                    "when the time was up"
                };
                let (name, state) = (state_of(&object, "/name"), state_of(&object, wait.state));
                return Ok(Waited::NotReached(
                    object.clone(),
                    format!("{name}: its node was {state} {what}. {why}"),
                ));
            }
            if let Some(operation) = object.pointer("/status/operation").and_then(Json::as_str) {
                let left = deadline.saturating_duration_since(Instant::now()).min(POLL);
                let wait = format!("{}s", left.as_secs().max(1));
                // The response only wakes the loop. The result of the operation is read from the
                // object.
                drop(
                    self.client
                        .get_value(&["operations", operation], &[("wait", &wait)])
                        .await,
                );
            }
            match self.find(kind, &id).await {
                Ok(Some(found)) => object = found,
                Ok(None) => {
                    return Ok(Waited::NotReached(
                        object,
                        "It was removed in the meantime.".into(),
                    ));
                }
                Err(error) if error.away() => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Returns the server's explanation of the node's state.
    async fn why(&self, kind: &Kind, object: &Json) -> String {
        let pointer = if kind.word == "claim" {
            "/status/node"
        } else {
            "/name"
        };
        match self.client.node_why(state_of(object, pointer)).await {
            Ok(why) => why.sentence,
            Err(error) => error.to_string(),
        }
    }
}

/// Time to erase the disks of a released node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Erase {
    Now,
    /// After the pool's undo window for a release.
    Later,
}

/// Converts a token to the form of every other object. The requested lifetime in seconds is the
/// time from `created_at` to `expires_at`.
fn as_object(token: Token) -> Json {
    let life = token.expires_at.duration_since(token.created_at).as_secs();
    let mut spec = Map::new();
    spec.insert("role".into(), token.role.as_str().into());
    spec.insert("expires_in_s".into(), life.into());
    let scope = (!token.scope.is_everywhere())
        .then(|| serde_json::to_value(&token.scope).unwrap_or_default());
    spec.extend(scope.map(|scope| ("scope".to_owned(), scope)));
    spec.extend(
        token
            .releases_per_hour
            .map(|limit| ("releases_per_hour".to_owned(), limit.into())),
    );
    json!({
        "id": token.id, "name": token.name, "spec": spec, "created_at": token.created_at,
        "status": { "expires_at": token.expires_at, "last_used": token.last_used, "revoked_at": token.revoked_at, "made_by": token.made_by },
    })
}
