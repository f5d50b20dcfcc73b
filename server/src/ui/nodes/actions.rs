//! The actions on a node's page. Each button posts a form, which calls the API's own function. A
//! button that does not apply shows the reason instead.

use axum::extract::State;
use axum::response::Redirect;
use jiff::{SignedDuration, Timestamp};
use muster_api::nodes::NodeAction;
use muster_core::claims::ClaimState;
use muster_core::effects::erases;
use muster_core::lifecycle::requests::{Blocker, RequestContext, find_blocker, needs_reason};
use muster_core::lifecycle::state::{State as NodeState, Wish};
use muster_core::lifecycle::table::{states_for, wish_allowed};
use serde::Deserialize;

use super::adopt::Form;
use crate::app::App;
use crate::auth::Actor;
use crate::db::pages::nodes::MachineRow;
use crate::error::Error;
use crate::http::extract::Path;
use crate::intents::claims::disks::Disks;
use crate::intents::claims::release::release_claim;
use crate::intents::idempotency::IdempotencyKey;
use crate::intents::nodes::actions::request_action;
use crate::intents::nodes::view::NodeObject;
use crate::intents::preconditions::Preconditions;

/// Longest maintenance, in hours: one year. A longer maintenance is a retirement.
const MOST_HOURS: i64 = 366 * 24;

/// A button, or the reason for a missing button.
pub(in crate::ui) struct Action {
    pub wish: &'static str,
    pub title: &'static str,
    pub tells: &'static str,
    /// Why the action is refused now. Empty when allowed.
    pub refused: String,
    pub reason_needed: bool,
    /// Whether the form offers an end time.
    pub timed: bool,
    /// Whether the form offers a suite.
    pub suited: bool,
    /// Generation of the node as shown. A request from an old page is rejected.
    pub generation: i64,
    /// Text to type as confirmation. Empty where a button is enough.
    pub typed: String,
    pub danger: bool,
    /// Id and generation of the claim shown, so that an old page never releases another claim.
    pub claim: Option<(String, i64)>,
    /// The form for an adoption, where a reason is not enough.
    pub adopt: Option<Form>,
}

/// Returns every action. Allowed actions come first.
pub(super) fn offered(
    node: &NodeObject,
    machine: &MachineRow,
    actor: &Actor,
) -> Result<Vec<Action>, Error> {
    let state: NodeState = node.status.state.parse().map_err(Error::internal)?;
    // The form for replaced parts is shown next to the parts.
    let wishes = Wish::ALL.iter().filter(|wish| **wish != Wish::ReplaceParts);
    let mut actions: Vec<Action> = wishes
        .map(|&wish| action(node, machine, actor, state, wish))
        .collect();
    actions.sort_by_key(|action| !action.refused.is_empty());
    Ok(actions)
}

/// Returns why a requested action is refused now. Empty when allowed.
pub(super) fn refused(
    node: &NodeObject,
    machine: &MachineRow,
    actor: &Actor,
    wish: Wish,
) -> Result<String, Error> {
    let state: NodeState = node.status.state.parse().map_err(Error::internal)?;
    Ok(refusal(node, machine, actor, state, wish).unwrap_or_default())
}

fn action(
    node: &NodeObject,
    machine: &MachineRow,
    actor: &Actor,
    state: NodeState,
    wish: Wish,
) -> Action {
    Action {
        wish: wish.as_str(),
        title: title(wish),
        tells: describe(wish),
        refused: refusal(node, machine, actor, state, wish).unwrap_or_default(),
        reason_needed: needs_reason(wish),
        timed: wish == Wish::Maintain,
        suited: wish == Wish::RunGates,
        typed: if erases(wish) {
            node.name.to_string()
        } else {
            String::new()
        },
        danger: erases(wish)
            || matches!(
                wish,
                Wish::Quarantine | Wish::Retire | Wish::Reject | Wish::PowerOff
            ),
        generation: node.generation,
        claim: machine
            .claim_id
            .map(|id| id.to_string())
            .zip(machine.claim_generation)
            .filter(|_| wish == Wish::Release),
        adopt: None,
    }
}

fn refusal(
    node: &NodeObject,
    machine: &MachineRow,
    actor: &Actor,
    state: NodeState,
    wish: Wish,
) -> Option<String> {
    let verb = format!("node.{wish}");
    if !actor.holding.somewhere(&verb) {
        return Some(format!(
            "needs {verb}, which the role {} has not",
            actor.role.as_str()
        ));
    }
    // A release is a request to the claim of the node.
    if wish == Wish::Release && wish_allowed(state, wish) && node.status.claim.is_none() {
        return Some("nothing holds it: there is no claim to release".to_owned());
    }
    let context = RequestContext {
        state,
        pending: machine.wish,
        claimed: node.status.claim.is_some(),
        releasing: machine.claim_state == Some(ClaimState::Releasing),
        protected: node
            .spec
            .get("protected")
            .and_then(serde_json::Value::as_bool)
            .unwrap_or(false),
    };
    Some(match find_blocker(context, wish)? {
        Blocker::Pending => format!(
            "it was asked to {} and is not done",
            machine.wish.map_or("", Wish::as_str)
        ),
        Blocker::State => {
            let words: Vec<String> = states_for(wish)
                .iter()
                .map(|state| state.as_str().replace('_', " "))
                .collect();
            format!("possible when {}", words.join(", "))
        }
        Blocker::NotClaimed => "nothing holds it: no pool says what to install".to_owned(),
        Blocker::Releasing => "it is being released, and only that goes on".to_owned(),
        Blocker::Protected => "it is protected; clear that first".to_owned(),
    })
}

/// The title of an action's button.
fn title(wish: Wish) -> &'static str {
    match wish {
        Wish::Accept => "Accept",
        Wish::Adopt => "Adopt",
        Wish::Reject => "Reject",
        Wish::Inspect => "Inspect",
        Wish::Release => "Release",
        Wish::Retry => "Retry",
        Wish::Quarantine => "Quarantine",
        Wish::Recover => "Recover",
        Wish::Wipe => "Wipe",
        Wish::Drain => "Drain",
        Wish::Undrain => "Undrain",
        Wish::Maintain => "Maintenance",
        Wish::Resume => "Resume",
        Wish::Retire => "Retire",
        Wish::Reinstate => "Reinstate",
        Wish::CheckDrift => "Compare",
        Wish::PowerOn => "Power on",
        Wish::PowerOff => "Power off",
        Wish::PowerCycle => "Power cycle",
        Wish::RunGates => "Run gates",
        Wish::Converge => "Converge",
        Wish::Reinstall => "Reinstall",
        Wish::RotateBmc => "Rotate BMC",
        Wish::Sweep => "Sweep",
        Wish::ReplaceParts => "A part was replaced",
    }
}

/// The effect of an action, in words for the person who requests the action.
fn describe(wish: Wish) -> &'static str {
    match wish {
        Wish::Accept => "Inspect this machine and make it available.",
        Wish::Adopt => "It runs already: take it into service as it is, without a reboot.",
        Wish::Reject => "Do not take this machine; it is remembered.",
        Wish::Inspect => {
            "Take the inventory again: in the live image, or beside its jobs where it is in service."
        }
        Wish::Release => {
            "Drain it, take it out of the scheduler, wipe its disks, inspect it. The claim ends. Until the wipe it can be undone, on the page of claims."
        }
        Wish::Retry => "Begin the phase that failed again, from its start.",
        Wish::Quarantine => "Stop what runs and use it for nothing until a person decides.",
        Wish::Recover => {
            "In service: drain it, then try its pool's ladder, verified by gates. In quarantine: run the gates again, or inspect it when nobody holds it."
        }
        Wish::Wipe => "Erase every disk and read back that they are empty.",
        Wish::Drain => "Take no new jobs; running ones end by themselves.",
        Wish::Undrain => "Take jobs again.",
        Wish::Maintain => "Give it to a person; Muster leaves it alone.",
        Wish::Resume => "Take it back from maintenance and inspect it.",
        Wish::Retire => "Out of the fleet; it is remembered.",
        Wish::Reinstate => "Back into the fleet, beginning with an inspection.",
        Wish::CheckDrift => "Hold it against its stack, beside its jobs; nothing is changed.",
        Wish::PowerOn => "By its BMC; it boots from its own disk.",
        Wish::PowerOff => "Shut it down, and cut its power where its system does not answer.",
        Wish::PowerCycle => "Reset it by its BMC, whatever runs there.",
        Wish::RunGates => {
            "In its own system, or in the live image where it has none. Nothing is decided by what they say."
        }
        Wish::Converge => {
            "Drain it, install its stack over what it runs, and take it through its gates."
        }
        Wish::Reinstall => {
            "Drain it, write its image onto its root disk, and take it through its gates."
        }
        Wish::RotateBmc => {
            "Give its BMC another password, beside its jobs. The former is kept until the BMC has taken the other."
        }
        Wish::Sweep => {
            "Run its pool's sweep: all of it while it is idle, else beside its jobs. A node that fails is drained."
        }
        Wish::ReplaceParts => "Inspect it for the new serials; earlier gate runs are void.",
    }
}

/// The fields of a button's form.
#[derive(Debug, Deserialize)]
pub(in crate::ui) struct Fields {
    #[serde(default)]
    reason: String,
    #[serde(default)]
    typed: String,
    /// For maintenance: hours until the end of the maintenance.
    #[serde(default)]
    hours: String,
    /// For a run of gates: the name of the suite. Empty for the pool's suite.
    #[serde(default)]
    suite: String,
    claim: Option<String>,
    /// Generation shown on the page: the claim's for a release, else the node's.
    generation: Option<i64>,
}

/// Requests an action on a node, as `POST /v1/nodes/{node}/actions/{action}` does. A release works
/// as `DELETE /v1/claims/{claim}` does.
pub(in crate::ui) async fn act_on_node(
    State(app): State<App>,
    actor: Actor,
    Path((node, wish)): Path<(String, String)>,
    axum::Form(asked): axum::Form<Fields>,
) -> Result<Redirect, Error> {
    let wish: Wish = wish
        .parse()
        .map_err(|_| Error::NotFound(format!("The action {wish:?}")))?;
    if erases(wish) && asked.typed.trim() != node {
        return Err(Error::unprocessable(
            "typed",
            "not_confirmed",
            format!("Type the node's name, {node}, to confirm."),
        ));
    }
    let reason = Some(asked.reason.trim().to_owned()).filter(|reason| !reason.is_empty());
    match (wish, asked.claim.zip(asked.generation)) {
        (Wish::Release, Some((claim, generation))) => {
            release_claim(&app, &actor, &claim, generation, Disks::Kept)
                .await
                .map(drop)?;
        }
        (Wish::Release, None) => {
            return Err(Error::unprocessable(
                "claim",
                "required",
                "The claim that is to end.",
            ));
        }
        _ => {
            let suite = Some(asked.suite.trim().to_owned()).filter(|suite| !suite.is_empty());
            let action = NodeAction {
                reason,
                until: end(asked.hours.trim(), app.clock.now())?,
                suite,
            };
            // An erasure applies only to the node as the page showed it. Other actions can be
            // undone, and apply to the node as it is.
            let seen = asked.generation.filter(|_| erases(wish));
            let seen = seen.map(Preconditions::generation).unwrap_or_default();
            let key = IdempotencyKey::none();
            request_action(&app, &actor, &node, key, seen, &action, wish)
                .await
                .map(drop)?;
        }
    }
    Ok(Redirect::to(&format!("/nodes/{node}")))
}

/// Returns the time `hours` hours from `now`. An empty field means a maintenance without an end.
fn end(hours: &str, now: Timestamp) -> Result<Option<Timestamp>, Error> {
    let wrong = || {
        Error::unprocessable(
            "hours",
            "out_of_range",
            format!("1 to {MOST_HOURS} hours, or none."),
        )
    };
    match hours {
        "" => Ok(None),
        hours => match hours.parse() {
            Ok(hours @ 1..=MOST_HOURS) => Ok(Some(now + SignedDuration::from_hours(hours))),
            _ => Err(wrong()),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_wish_has_a_button() {
        for &wish in Wish::ALL {
            assert!(
                !title(wish).is_empty() && describe(wish).ends_with('.'),
                "{wish}"
            );
        }
    }
}
