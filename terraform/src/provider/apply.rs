//! Creates, changes and destroys objects. Terraform never loses an object begun here. A created
//! object is returned with its id even if the object is not ready in time. A failed wait is never
//! an error of the creation, because Terraform would destroy the object at the next apply. An apply
//! killed before its response may leave an object behind. An existing object with exactly the
//! wanted content is taken over.

use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::time::Duration;

use jiff::SignedDuration;
use muster_api::client::ClientError;
use muster_core::values::Secret;
use rmpv::Value;
use serde_json::Value as Json;
use tokio::time::Instant;
use tonic::Status;

use super::{Provider, state};
use crate::diagnostics::{error, refusal, warning};
use crate::kinds::{Kind, NOTHING};
use crate::messages::{Apply, ApplyAnswer, Diagnostic};
use crate::remote::{Erase, Remote, Waited};
use crate::value::state_of;
use crate::value::{Attributes, decode, encode, get, text};

/// Error codes that resolve without an operator, when a node has finished its current work.
const NOT_YET: [&str; 5] = [
    "node_not_available",
    "no_node_available",
    "node_busy",
    "busy",
    "contended",
];

/// Error codes possibly caused by an earlier apply that was killed.
const TAKEN: [&str; 3] = ["exists", "name_taken", "node_claimed"];

/// New state for Terraform, and diagnostics to show.
type Outcome = (Option<Attributes>, Vec<Diagnostic>);

impl Provider {
    pub(crate) async fn apply(self, call: Apply) -> Result<ApplyAnswer, Status> {
        let kind = super::kind(&call.type_name)?;
        let (prior, planned) = (
            decode(call.prior_state.as_ref())?,
            decode(call.planned_state.as_ref())?,
        );
        let config = decode(call.config.as_ref())?.unwrap_or_default();
        let remote = self.remote()?;
        let deadline = |act: &str| {
            let asked = timeout(get(&config, "timeouts"), act)
                .or_else(|| stored_timeout(&call.planned_private, act));
            Instant::now() + asked.map_or(kind.patience, Duration::from_secs)
        };
        if let Some(wrong) = wrong_timeouts(get(&config, "timeouts")) {
            let (new_state, diagnostics) = (
                encode(prior),
                vec![error("A timeout cannot be read", wrong)],
            );
            return Ok(ApplyAnswer {
                new_state,
                private: call.planned_private,
                diagnostics,
            });
        }
        let (new_state, diagnostics) = match (prior, planned) {
            (None, Some(planned)) => {
                create(remote, kind, &planned, &config, deadline("create")).await
            }
            (Some(prior), Some(planned)) => {
                update(remote, kind, prior, &planned, &config, deadline("update")).await
            }
            (Some(prior), None) => destroy(remote, kind, prior, deadline("delete")).await,
            (None, None) => (None, Vec::new()),
        };
        Ok(ApplyAnswer {
            new_state: encode(new_state),
            private: call.planned_private,
            diagnostics,
        })
    }
}

async fn create(
    remote: &Remote,
    kind: &Kind,
    planned: &Attributes,
    config: &Attributes,
    deadline: Instant,
) -> Outcome {
    let name = text(planned, "name");
    let draft = state::draft(kind, planned, Some(config));
    let made = match kind.word {
        "token" => create_token(remote, name, &draft["spec"], text(config, "secret_file")).await,
        _ => create_or_take_over(remote, kind, name, &draft, deadline).await,
    };
    let object = match made {
        Ok(object) => object,
        Err(diagnostics) => return (None, diagnostics),
    };
    match wait(remote, kind, object.clone(), config, deadline).await {
        Ok(Waited::Reached(object)) => {
            (Some(state::state(kind, planned, &object, true)), Vec::new())
        }
        Ok(Waited::NotReached(object, why)) => {
            let detail = format!(
                "{why}\n\nIt is kept, and nothing is undone: another `terraform apply` goes on waiting."
            );
            let late = warning(format!("The {} is not ready yet", kind.word), detail);
            (
                Some(state::state(kind, planned, &object, false)),
                vec![late],
            )
        }
        Err(refused) => {
            let late = warning(
                format!("The {} was made, but not seen to be ready", kind.word),
                refused.to_string(),
            );
            (
                Some(state::state(kind, planned, &object, false)),
                vec![late],
            )
        }
    }
}

/// Creates the object, or finds the object created by a killed apply.
async fn create_or_take_over(
    remote: &Remote,
    kind: &Kind,
    name: &str,
    draft: &Json,
    deadline: Instant,
) -> Result<Json, Vec<Diagnostic>> {
    let doing = format!("The {} {name} was not created", kind.word);
    let refuse = |refused: &ClientError| refusal(Some(kind), &doing, refused);
    loop {
        let refused = match remote.create(kind, name, draft).await {
            Ok(object) => return Ok(object),
            Err(refused) => refused,
        };
        let one_of = |codes: &[&str]| codes.iter().any(|code| refused.is(code));
        if !refused.away() && !one_of(&NOT_YET) && !one_of(&TAKEN) {
            return Err(refuse(&refused));
        }
        // The search also runs while no node is available, because the claim of a killed apply may
        // hold the node.
        match remote.find(kind, name).await {
            Ok(Some(object)) if is_ending(&object) => {}
            Ok(Some(object)) if state::is_as_drafted(&object, draft) => {
                return take_over(remote, kind, object, draft)
                    .await
                    .map_err(|refused| refuse(&refused));
            }
            Ok(Some(object)) => {
                let id = state_of(&object, "/id");
                let detail = format!(
                    "There is one with this name and other content. To manage it here, import it: {id}"
                );
                return Err(vec![error(doing, detail)]);
            }
            Ok(None) if one_of(&["node_claimed"]) => return Err(refuse(&refused)),
            Ok(None) => {}
            Err(away) if away.away() => {}
            Err(refused) => return Err(refuse(&refused)),
        }
        if !remote.pause(deadline).await {
            return Err(refuse(&refused));
        }
    }
}

/// Takes over an existing object. A secret cannot be compared, so the secret is sent again.
async fn take_over(
    remote: &Remote,
    kind: &Kind,
    object: Json,
    draft: &Json,
) -> Result<Json, ClientError> {
    match kind.takes_secret() {
        true => {
            remote
                .replace(kind, state_of(&object, "/id"), generation(&object), draft)
                .await
        }
        false => Ok(object),
    }
}

/// Returns whether a claim is being released. Such a claim belongs to no owner, and its name is
/// free soon.
fn is_ending(object: &Json) -> bool {
    matches!(state_of(object, "/status/state"), "releasing" | "released")
}

/// Creates a token and writes the secret to a file readable only by the file's owner.
async fn create_token(
    remote: &Remote,
    name: &str,
    spec: &Json,
    file: &str,
) -> Result<Json, Vec<Diagnostic>> {
    let doing = format!("The token {name} was not made");
    if file.is_empty() {
        let detail =
            "Without `secret_file` nobody would ever see its secret: it is kept in no state.";
        return Err(vec![error(doing, detail)]);
    }
    let mut options = std::fs::OpenOptions::new();
    // The file may contain the secret of a live token with the same name. The file is emptied only
    // after the new token exists.
    let opened = options
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(file);
    let mut opened = opened.map_err(|why| vec![error(&doing, format!("{file}: {why}"))])?;
    let made = remote.create_token(name, spec).await;
    let (object, secret): (Json, Secret) =
        made.map_err(|refused| refusal(None, &doing, &refused))?;
    let emptied = opened.set_len(0);
    let written = emptied
        .and_then(|()| opened.write_all(secret.reveal().as_bytes()))
        .and_then(|()| opened.sync_all());
    match written {
        Ok(()) => Ok(object),
        Err(why) => {
            // The secret is lost, so the token is revoked.
            drop(remote.client.revoke_token(state_of(&object, "/id")).await);
            Err(vec![error(doing, format!("{file}: {why}"))])
        }
    }
}

async fn update(
    remote: &Remote,
    kind: &Kind,
    prior: Attributes,
    planned: &Attributes,
    config: &Attributes,
    deadline: Instant,
) -> Outcome {
    let (id, name) = (text(&prior, "id"), text(&prior, "name"));
    let (before, after) = (
        state::draft(kind, &prior, None),
        state::draft(kind, planned, None),
    );
    let unfinished = get(&prior, "ready").as_bool() == Some(false);
    let doing = format!("The {} {name} was not changed", kind.word);
    let mut generation = get(&prior, "generation").as_i64().unwrap_or_default();
    if kind.renames() && name != text(planned, "name") {
        // The plan is based on this generation. The rename returns the next generation.
        match remote
            .rename(kind, id, generation, text(planned, "name"))
            .await
        {
            Ok(renamed) => generation = renamed,
            Err(refused) => return (Some(prior), refusal(Some(kind), &doing, &refused)),
        }
    }
    let written = match before == after {
        true => {
            remote
                .patiently(deadline, &[], || remote.find(kind, id))
                .await
        }
        false => {
            let draft = state::draft(kind, planned, Some(config));
            let replaced = remote
                .patiently(deadline, &NOT_YET, || {
                    remote.replace(kind, id, generation, &draft)
                })
                .await;
            replaced.map(Some)
        }
    };
    let object = match written {
        Ok(Some(object)) => object,
        Ok(None) => return (None, vec![error(doing, "It was removed in the meantime.")]),
        Err(refused) => return (Some(prior), refusal(Some(kind), &doing, &refused)),
    };
    if !unfinished {
        return (Some(state::state(kind, planned, &object, true)), Vec::new());
    }
    match wait(remote, kind, object, config, deadline).await {
        Ok(Waited::Reached(object)) => {
            (Some(state::state(kind, planned, &object, true)), Vec::new())
        }
        Ok(Waited::NotReached(object, why)) => {
            let late = error(format!("The {} {name} is not ready yet", kind.word), why);
            (
                Some(state::state(kind, planned, &object, false)),
                vec![late],
            )
        }
        Err(refused) => (Some(prior), refusal(Some(kind), &doing, &refused)),
    }
}

async fn destroy(remote: &Remote, kind: &Kind, prior: Attributes, deadline: Instant) -> Outcome {
    let id = text(&prior, "id");
    let generation = get(&prior, "generation").as_i64().unwrap_or_default();
    let erase = match get(&prior, "erase_now").as_bool() {
        Some(true) => Erase::Now,
        _ => Erase::Later,
    };
    let doing = format!(
        "The {} {} was not destroyed",
        kind.word,
        text(&prior, "name")
    );
    let removed = remote
        .patiently(deadline, &NOT_YET, || {
            remote.remove(kind, id, generation, erase)
        })
        .await;
    match removed {
        Err(refused) if refused.status() == Some(404) || refused.is("released") => {
            return (None, Vec::new());
        }
        Err(refused) => return (Some(prior), refusal(Some(kind), &doing, &refused)),
        Ok(()) if kind.word != "claim" => return (None, Vec::new()),
        Ok(()) => {}
    }
    loop {
        match remote
            .patiently(deadline, &[], || remote.find(kind, id))
            .await
        {
            Ok(None) => return (None, Vec::new()),
            Ok(Some(object)) if state_of(&object, "/status/state") == "released" => {
                return (None, Vec::new());
            }
            Ok(Some(object)) if !remote.pause(deadline).await => {
                let node = state_of(&object, "/status/node");
                let detail = format!(
                    "{node} is still being released: `muster node why {node}` says what it waits for."
                );
                return (Some(prior), vec![error(doing, detail)]);
            }
            Ok(Some(_)) => {}
            Err(refused) => return (Some(prior), refusal(Some(kind), &doing, &refused)),
        }
    }
}

/// Waits for the state in `wait_for`, or for the condition of the kind.
async fn wait(
    remote: &Remote,
    kind: &Kind,
    object: Json,
    config: &Attributes,
    deadline: Instant,
) -> Result<Waited, ClientError> {
    // A claim has its own goal in the spec, and the server reports the readiness.
    let goal = Some(text(config, "wait_for"))
        .filter(|goal| !goal.is_empty())
        .unwrap_or(NOTHING);
    remote.wait(kind, object, goal, deadline).await
}

fn generation(object: &Json) -> i64 {
    object["generation"].as_i64().unwrap_or_default()
}

/// Returns the seconds allowed by `timeouts` for an action.
pub(super) fn timeout(timeouts: &Value, act: &str) -> Option<u64> {
    let Value::Map(entries) = timeouts else {
        return None;
    };
    let (_, text) = entries.iter().find(|(key, _)| key.as_str() == Some(act))?;
    let duration: SignedDuration = text.as_str()?.parse().ok()?;
    u64::try_from(duration.as_secs()).ok()
}

/// Returns an error message for an unknown action or an unreadable time in `timeouts`.
fn wrong_timeouts(timeouts: &Value) -> Option<String> {
    let Value::Map(entries) = timeouts else {
        return None;
    };
    entries.iter().find_map(|(key, value)| {
        let key = key.as_str().unwrap_or_default();
        match ["create", "update", "delete"].contains(&key) && timeout(timeouts, key).is_some() {
            true => None,
            false => Some(format!(
                "{key} = {value}: create, update or delete, and a time such as 90s, 30m or 2h."
            )),
        }
    })
}

/// Returns the timeout stored with the plan.
fn stored_timeout(private: &[u8], act: &str) -> Option<u64> {
    serde_json::from_slice::<Json>(private).ok()?[act].as_u64()
}
