//! Plans an apply: replacements, values known only after the apply, and effects on machines.

use rmpv::Value;
use serde_json::json;
use tonic::Status;

use super::Provider;
use crate::diagnostics::{error, path};
use crate::kinds::{Fixed, Kind};
use crate::messages::{AttributePath, Diagnostic, Plan, PlanAnswer};
use crate::value::{Attributes, decode, encode, get, has_unknown, same, unknown};

/// Attributes written by the operator.
const WRITTEN: [&str; 6] = [
    "name",
    "labels",
    "annotations",
    "spec",
    "secret_version",
    "erase_now",
];
/// Attributes changed by every write.
const AFTER_WRITE: [&str; 3] = ["status", "generation", "ready"];
const NEVER_STORED: [&str; 4] = ["secret", "secret_file", "wait_for", "timeouts"];

impl Provider {
    pub(crate) async fn plan(self, call: Plan) -> Result<PlanAnswer, Status> {
        let kind = super::kind(&call.type_name)?;
        let (prior, proposed) = (
            decode(call.prior_state.as_ref())?,
            decode(call.proposed_new_state.as_ref())?,
        );
        let config = decode(call.config.as_ref())?.unwrap_or_default();
        let Some(mut planned) = proposed else {
            let diagnostics = match &prior {
                Some(prior) => self.planned.destroyed(self.remote()?, kind, prior).await,
                None => Vec::new(),
            };
            let (planned_private, planned_state) = (call.prior_private, encode(None));
            return Ok(PlanAnswer {
                planned_state,
                planned_private,
                diagnostics,
                ..PlanAnswer::default()
            });
        };
        let (mut diagnostics, mut requires_replace) = (Vec::new(), Vec::new());
        match &prior {
            None => plan_creation(&mut planned),
            Some(prior) => {
                requires_replace = plan_change(kind, prior, &mut planned);
                if kind.word == "token" && requires_replace == [path("spec")] {
                    let detail = "What it may do is fixed, and the name of a token is used once: give it another name.";
                    diagnostics.push(Diagnostic {
                        attribute: Some(path("spec")),
                        ..error("Another token needs another name", detail)
                    });
                }
            }
        }
        let (remote, replaced) = (self.remote()?, !requires_replace.is_empty());
        if let (Some(prior), true) = (&prior, replaced) {
            // Terraform plans the new object in a second call and hides the diagnostics of the second
            // call. The effects of the destruction and of the new object are therefore reported here.
            diagnostics.extend(self.planned.destroyed(remote, kind, prior).await);
        }
        let before = prior.as_ref().filter(|_| !replaced);
        diagnostics.extend(
            self.planned
                .written(remote, kind, before, &planned, &config)
                .await,
        );
        for name in NEVER_STORED {
            planned
                .entry(name.into())
                .and_modify(|value| *value = Value::Nil);
        }
        Ok(PlanAnswer {
            planned_state: encode(Some(planned)),
            requires_replace,
            planned_private: private(&config),
            diagnostics,
        })
    }
}

/// Returns the data needed after the configuration is gone: the timeout for destroying.
fn private(config: &Attributes) -> Vec<u8> {
    json!({ "delete": super::apply::timeout(get(config, "timeouts"), "delete") })
        .to_string()
        .into_bytes()
}

fn plan_creation(planned: &mut Attributes) {
    for name in ["id", "status", "generation", "created_at", "ready"] {
        planned
            .entry(name.into())
            .and_modify(|value| *value = unknown());
    }
}

/// Plans the change of an existing object. Returns the attributes that force a replacement.
fn plan_change(kind: &Kind, prior: &Attributes, planned: &mut Attributes) -> Vec<AttributePath> {
    let parts: &[&str] = if kind.labelled() {
        &["labels", "annotations", "spec"]
    } else {
        &["spec"]
    };
    for part in parts {
        if same(kind.part(part), get(prior, part), get(planned, part)) {
            planned.insert((*part).into(), get(prior, part).clone());
        }
    }
    let differs =
        |name: &str| get(prior, name) != get(planned, name) || has_unknown(get(planned, name));
    let changed = WRITTEN.iter().any(|name| differs(name));
    let unfinished = get(prior, "ready").as_bool() == Some(false);
    let fixed: &[&str] = match kind.fixed {
        Fixed::Nothing => &[],
        Fixed::Name => &["name"],
        Fixed::NameAndSpec => &["name", "spec"],
        Fixed::NameAndSpecBut(free) if only(free, get(prior, "spec"), get(planned, "spec")) => {
            &["name"]
        }
        Fixed::NameAndSpecBut(_) => &["name", "spec"],
    };
    let replaced = fixed
        .iter()
        .filter(|name| differs(name))
        .map(|name| path(name))
        .collect();
    if changed || unfinished {
        for name in AFTER_WRITE {
            planned
                .entry(name.into())
                .and_modify(|value| *value = unknown());
        }
    }
    replaced
}

/// Returns whether two objects differ only in the listed members.
fn only(free: &[&str], one: &Value, other: &Value) -> bool {
    let (Value::Map(one), Value::Map(other)) = (one, other) else {
        return one == other;
    };
    let kept = |entries: &[(Value, Value)]| -> Vec<(Value, Value)> {
        let fixed = entries
            .iter()
            .filter(|(key, _)| !key.as_str().is_some_and(|key| free.contains(&key)));
        fixed.cloned().collect()
    };
    let (one, other) = (kept(one), kept(other));
    one.len() == other.len() && one.iter().all(|entry| other.contains(entry))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_can_be_changed_in_place_makes_no_other_claim() {
        let spec = |pool: &str, hold: Value| {
            Value::Map(vec![
                (Value::from("pool"), Value::from(pool)),
                (Value::from("hold"), hold),
            ])
        };
        let free = ["hold", "wait_for"];
        assert!(only(
            &free,
            &spec("a", Value::Nil),
            &spec("a", Value::from(true))
        ));
        assert!(!only(&free, &spec("a", Value::Nil), &spec("b", Value::Nil)));
        assert!(
            !only(&free, &spec("a", Value::Nil), &unknown()),
            "what is not known yet may be another pool"
        );
    }
}
