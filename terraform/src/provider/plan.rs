//! What an apply will do: what becomes another object, what is only known afterwards, and what it does to machines.

use rmpv::Value;
use serde_json::json;
use tonic::Status;

use super::Provider;
use crate::diagnostics::{error, path, warning};
use crate::kinds::{Fixed, Kind};
use crate::messages::{AttributePath, Diagnostic, Plan, PlanAnswer};
use crate::value::{Attributes, decode, encode, get, has_unknown, same, text, unknown};

/// The attributes that a person writes.
const WRITTEN: [&str; 6] = ["name", "labels", "annotations", "spec", "secret_version", "erase_now"];
/// What every write changes.
const AFTER_WRITE: [&str; 3] = ["status", "generation", "ready"];
const NEVER_STORED: [&str; 4] = ["secret", "secret_file", "wait_for", "timeouts"];

impl Provider {
    pub(crate) async fn plan(self, call: Plan) -> Result<PlanAnswer, Status> {
        let kind = super::kind(&call.type_name)?;
        let (prior, proposed) = (decode(call.prior_state.as_ref())?, decode(call.proposed_new_state.as_ref())?);
        let config = decode(call.config.as_ref())?.unwrap_or_default();
        let Some(mut planned) = proposed else {
            let diagnostics = prior.iter().flat_map(|prior| wipes(kind, prior)).collect();
            let (planned_private, planned_state) = (call.prior_private, encode(None));
            return Ok(PlanAnswer { planned_state, planned_private, diagnostics, ..PlanAnswer::default() });
        };
        let (mut diagnostics, mut requires_replace) = (Vec::new(), Vec::new());
        match &prior {
            None => {
                plan_creation(&mut planned);
                diagnostics.extend(reinstalls(kind, &planned));
            }
            Some(prior) => {
                requires_replace = plan_change(kind, prior, &mut planned);
                if kind.word == "token" && requires_replace == [path("spec")] {
                    let detail = "What it may do is fixed, and the name of a token is used once: give it another name.";
                    diagnostics.push(Diagnostic {
                        attribute: Some(path("spec")),
                        ..error("Another token needs another name", detail)
                    });
                }
                if !requires_replace.is_empty() {
                    // Terraform asks again for what takes its place, and shows nothing of that.
                    diagnostics.extend(wipes(kind, prior).into_iter().chain(reinstalls(kind, &planned)));
                }
            }
        }
        for name in NEVER_STORED {
            planned.entry(name.into()).and_modify(|value| *value = Value::Nil);
        }
        Ok(PlanAnswer {
            planned_state: encode(Some(planned)),
            requires_replace,
            planned_private: private(&config),
            diagnostics,
        })
    }
}

/// What is needed when there is no configuration any more: how long destroying may take.
fn private(config: &Attributes) -> Vec<u8> {
    json!({ "delete": super::apply::timeout(get(config, "timeouts"), "delete") }).to_string().into_bytes()
}

fn plan_creation(planned: &mut Attributes) {
    for name in ["id", "status", "generation", "created_at", "ready"] {
        planned.entry(name.into()).and_modify(|value| *value = unknown());
    }
}

/// Plans a change of what is there; the answer is what can only change by making another one.
fn plan_change(kind: &Kind, prior: &Attributes, planned: &mut Attributes) -> Vec<AttributePath> {
    let parts: &[&str] = if kind.labelled() { &["labels", "annotations", "spec"] } else { &["spec"] };
    for part in parts {
        if same(kind.part(part), get(prior, part), get(planned, part)) {
            planned.insert((*part).into(), get(prior, part).clone());
        }
    }
    let differs = |name: &str| get(prior, name) != get(planned, name) || has_unknown(get(planned, name));
    let changed = WRITTEN.iter().any(|name| differs(name));
    let unfinished = get(prior, "ready").as_bool() == Some(false);
    let fixed: &[&str] = match kind.fixed {
        Fixed::Name => &["name"],
        Fixed::NameAndSpec => &["name", "spec"],
    };
    let replaced = fixed.iter().filter(|name| differs(name)).map(|name| path(name)).collect();
    if changed || unfinished {
        for name in AFTER_WRITE {
            planned.entry(name.into()).and_modify(|value| *value = unknown());
        }
    }
    replaced
}

/// What destroying this does to a machine.
fn wipes(kind: &Kind, prior: &Attributes) -> Option<Diagnostic> {
    if kind.word != "claim" {
        return None;
    }
    let node = match get(prior, "status") {
        Value::Map(members) => members.iter().find(|(name, _)| name.as_str() == Some("node")),
        _ => None,
    };
    let node = node.and_then(|(_, node)| node.as_str()).unwrap_or("its node");
    let when = match get(prior, "erase_now").as_bool() {
        Some(true) => "at once, and for good",
        _ => "when the pool's undo window is over",
    };
    let detail = format!(
        "Destroying the claim {} drains {node}, takes it out of its cluster and wipes its disks {when}.",
        text(prior, "name")
    );
    Some(warning("Effect: wipe", detail))
}

/// What creating this does to a machine.
fn reinstalls(kind: &Kind, planned: &Attributes) -> Option<Diagnostic> {
    if kind.word != "claim" {
        return None;
    }
    let member = |name: &str| match get(planned, "spec") {
        Value::Map(members) => members.iter().find(|(key, _)| key.as_str() == Some(name)).and_then(|(_, v)| v.as_str()),
        _ => None,
    };
    let node = member("node").unwrap_or("an available node that fits");
    let pool = member("pool").unwrap_or("a pool");
    let detail = format!(
        "The claim {} writes the image of {pool} onto the root disk of {node} and reboots it.",
        text(planned, "name")
    );
    Some(warning("Effect: reinstall", detail))
}
