//! The actions on a node's page. Each button posts a form, which calls the API's own function. A
//! button that does not apply shows the reason instead.

use axum::extract::State;
use axum::response::Redirect;
use jiff::{SignedDuration, Timestamp};
use muster_api::nodes::NodeAction;
use muster_core::claims::ClaimState;
use muster_core::effects::erases;
use muster_core::lifecycle::requests::{
    Blocker, RequestContext, find_blocker, may_override, needs_reason,
};
use muster_core::lifecycle::state::{Action, State as NodeState};
use muster_core::lifecycle::table::{action_allowed, states_for};
use muster_core::lifecycle::wait::WaitReason;
use serde::Deserialize;

use super::adopt::Form;
use crate::app::App;
use crate::auth::Actor;
use crate::db::pages::nodes::MachineRow;
use crate::error::Error;
use crate::http::extract::{self, Path};
use crate::intents::claims::disks::Disks;
use crate::intents::claims::release::release_claim;
use crate::intents::idempotency::IdempotencyKey;
use crate::intents::nodes::actions::request_action;
use crate::intents::nodes::view::NodeObject;
use crate::intents::preconditions::Preconditions;

/// Longest maintenance, in hours: one year. A longer maintenance is a retirement.
const MOST_HOURS: i64 = 366 * 24;

/// A button, or the reason for a missing button.
pub(in crate::ui) struct Button {
    /// The action's word, as in `/v1/nodes/{node}/actions/{action}`.
    pub name: &'static str,
    pub title: &'static str,
    pub tells: &'static str,
    /// Why the action is refused now. Empty when allowed.
    pub refused: String,
    pub reason_needed: bool,
    /// Whether the form offers an end time.
    pub timed: bool,
    /// Whether the form offers a suite.
    pub suited: bool,
    /// Whether the form offers to exceed the disruption budget.
    pub overrides: bool,
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
) -> Result<Vec<Button>, Error> {
    let state: NodeState = node.status.state.parse().map_err(Error::internal)?;
    // The form for replaced parts is shown next to the parts.
    let actions = Action::ALL
        .iter()
        .filter(|action| **action != Action::ReplaceParts);
    let mut actions: Vec<Button> = actions
        .map(|&action| button(node, machine, actor, state, action))
        .collect();
    actions.sort_by_key(|action| !action.refused.is_empty());
    Ok(actions)
}

fn can_override(actor: &Actor, action: Action) -> bool {
    may_override(action) && actor.holding.somewhere("budget.override")
}

/// Returns why a requested action is refused now. Empty when allowed.
pub(super) fn refused(
    node: &NodeObject,
    machine: &MachineRow,
    actor: &Actor,
    action: Action,
) -> Result<String, Error> {
    let state: NodeState = node.status.state.parse().map_err(Error::internal)?;
    Ok(find_refusal(node, machine, actor, state, action).unwrap_or_default())
}

fn button(
    node: &NodeObject,
    machine: &MachineRow,
    actor: &Actor,
    state: NodeState,
    action: Action,
) -> Button {
    Button {
        name: action.as_str(),
        title: name_action(action),
        tells: describe_effect(action),
        refused: find_refusal(node, machine, actor, state, action).unwrap_or_default(),
        reason_needed: needs_reason(action),
        timed: action == Action::Maintain,
        suited: action == Action::RunGates,
        overrides: state == NodeState::InService && can_override(actor, action),
        typed: if erases(action) {
            node.name.to_string()
        } else {
            String::new()
        },
        danger: erases(action)
            || matches!(
                action,
                Action::Quarantine | Action::Retire | Action::Reject | Action::PowerOff
            ),
        generation: node.generation,
        claim: machine
            .claim_id
            .map(|id| id.to_string())
            .zip(machine.claim_generation)
            .filter(|_| action == Action::Release),
        adopt: None,
    }
}

fn find_refusal(
    node: &NodeObject,
    machine: &MachineRow,
    actor: &Actor,
    state: NodeState,
    action: Action,
) -> Option<String> {
    let verb = format!("node.{action}");
    if !actor.holding.somewhere(&verb) {
        return Some(format!(
            "requires {verb}; the role {} does not have it",
            actor.role.as_str()
        ));
    }
    // A release is a request to the claim of the node.
    if action == Action::Release && action_allowed(state, action) && node.status.claim.is_none() {
        return Some("the node has no claim to release".to_owned());
    }
    let context = RequestContext {
        state,
        failed_phase: node
            .status
            .failed_phase
            .as_deref()
            .and_then(|phase| phase.parse().ok()),
        pending: machine.action,
        waits_for_slot: node.status.why.reason.as_deref() == Some(WaitReason::Slot.as_str()),
        overrides: can_override(actor, action),
        claimed: node.status.claim.is_some(),
        releasing: machine.claim_state == Some(ClaimState::Releasing),
        protected: node
            .spec
            .get("protected")
            .and_then(serde_json::Value::as_bool)
            .unwrap_or(false),
    };
    Some(match find_blocker(context, action)? {
        Blocker::Pending => format!(
            "it was asked to {} and is not done",
            machine.action.map_or("", Action::as_str)
        ),
        Blocker::State => {
            let words: Vec<String> = states_for(action)
                .iter()
                .map(|state| state.as_str().replace('_', " "))
                .collect();
            format!("possible when {}", words.join(", "))
        }
        Blocker::OtherPhase => "possible when a drain has failed".to_owned(),
        Blocker::NotClaimed => "nothing holds it: no pool says what to install".to_owned(),
        Blocker::Releasing => "it is being released, and only that goes on".to_owned(),
        Blocker::Protected => "it is protected; clear that first".to_owned(),
    })
}

/// The title of an action's button.
fn name_action(action: Action) -> &'static str {
    match action {
        Action::Accept => "Accept",
        Action::Adopt => "Adopt",
        Action::Reject => "Reject",
        Action::Inspect => "Inspect",
        Action::Release => "Release",
        Action::Retry => "Retry",
        Action::Quarantine => "Quarantine",
        Action::Recover => "Recover",
        Action::Wipe => "Wipe",
        Action::Drain => "Drain",
        Action::Undrain => "Undrain",
        Action::Maintain => "Maintenance",
        Action::Resume => "Resume",
        Action::Retire => "Retire",
        Action::Reinstate => "Reinstate",
        Action::CheckDrift => "Compare",
        Action::PowerOn => "Power on",
        Action::PowerOff => "Power off",
        Action::PowerCycle => "Power cycle",
        Action::RunGates => "Run gates",
        Action::Converge => "Converge",
        Action::Reinstall => "Reinstall",
        Action::RotateBmc => "Rotate BMC",
        Action::Sweep => "Sweep",
        Action::ReplaceParts => "A part was replaced",
    }
}

/// The effect of an action, in words for the person who requests the action.
fn describe_effect(action: Action) -> &'static str {
    match action {
        Action::Accept => "Inspects the machine and makes the node available.",
        Action::Adopt => "Takes a machine with a running system into service, without a reboot.",
        Action::Reject => {
            "Rejects the machine. The record is kept, so the machine is not discovered again."
        }
        Action::Inspect => {
            "Takes the inventory again: in the live image, or beside the jobs of a node in service."
        }
        Action::Release => {
            "Drains the node, removes it from the scheduler, wipes the disks and inspects the node. The claim ends. Until the wipe, the page Claims can undo the release."
        }
        Action::Retry => "Repeats the failed phase from its start.",
        Action::Quarantine => {
            "Stops the current work and keeps the node out of use until a person decides."
        }
        Action::Recover => {
            "In service: drains the node and tries the recovery steps of its pool; gates verify the result. In quarantine: runs the gates again, or inspects a node without a claim."
        }
        Action::Wipe => "Erases every disk, and reads the disks back to verify.",
        Action::Drain => "The scheduler starts no new jobs; running jobs end on their own.",
        Action::Undrain => "The scheduler starts jobs again.",
        Action::Maintain => "Hands the node to a person; Muster leaves the node alone.",
        Action::Resume => "Ends the maintenance and inspects the node.",
        Action::Retire => "Takes the node out of the fleet. The record is kept.",
        Action::Reinstate => "Brings the node back into the fleet, beginning with an inspection.",
        Action::CheckDrift => {
            "Compares the node with its stack, beside the jobs. Nothing is changed."
        }
        Action::PowerOn => "Powers on by the BMC; the node boots from its own disk.",
        Action::PowerOff => {
            "Shuts the system down. The BMC cuts the power if the system does not answer."
        }
        Action::PowerCycle => "Resets the machine by the BMC, whatever is running.",
        Action::RunGates => {
            "Runs gates in the installed system, or in the live image without one. The results decide nothing."
        }
        Action::Converge => {
            "Drains a node in service, installs the stack over the running system, and runs the gates."
        }
        Action::Reinstall => {
            "Drains a node in service, writes the image to the root disk, and runs the gates."
        }
        Action::RotateBmc => {
            "Gives the BMC a new password, beside the jobs. The old password is kept until the BMC accepts the new one."
        }
        Action::Sweep => {
            "Runs the sweep of its pool: all gates on an idle node, otherwise the gates allowed beside jobs. A failing node is drained."
        }
        Action::ReplaceParts => {
            "Inspects the node for the new serials; earlier gate runs become void."
        }
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
    /// Present if the reason is also the reason for an act beyond the disruption budget.
    beyond_budget: Option<String>,
    claim: Option<String>,
    /// Generation shown on the page: the claim's for a release, else the node's.
    generation: Option<i64>,
}

/// Requests an action on a node, as `POST /v1/nodes/{node}/actions/{action}` does. A release works
/// as `DELETE /v1/claims/{claim}` does.
pub(in crate::ui) async fn act_on_node(
    State(app): State<App>,
    actor: Actor,
    Path((node, action)): Path<(String, String)>,
    extract::Form(asked): extract::Form<Fields>,
) -> Result<Redirect, Error> {
    let action: Action = action
        .parse()
        .map_err(|_| Error::NotFound(format!("The action {action:?}")))?;
    if erases(action) && asked.typed.trim() != node {
        return Err(Error::unprocessable(
            "typed",
            "not_confirmed",
            format!("Type the node's name, {node}, to confirm."),
        ));
    }
    let reason = Some(asked.reason.trim().to_owned()).filter(|reason| !reason.is_empty());
    let override_budget = reason_for_override(&asked);
    match (action, asked.claim.zip(asked.generation)) {
        (Action::Release, Some((claim, generation))) => {
            release_claim(&app, &actor, &claim, generation, Disks::Kept)
                .await
                .map(drop)?;
        }
        (Action::Release, None) => {
            return Err(Error::unprocessable(
                "claim",
                "required",
                "The claim that is to end.",
            ));
        }
        _ => {
            let suite = Some(asked.suite.trim().to_owned()).filter(|suite| !suite.is_empty());
            let body = NodeAction {
                reason,
                until: parse_end(asked.hours.trim(), app.clock.now())?,
                suite,
                override_budget,
            };
            // An erasure applies only to the node as the page showed it. Other actions can be
            // undone, and apply to the node as it is.
            let seen = asked.generation.filter(|_| erases(action));
            let seen = seen.map(Preconditions::generation).unwrap_or_default();
            let key = IdempotencyKey::none();
            request_action(&app, &actor, &node, key, seen, &body, action)
                .await
                .map(drop)?;
        }
    }
    Ok(Redirect::to(&format!("/nodes/{node}")))
}

/// Returns the reason for an act beyond the disruption budget, if the form asks for the act. An empty
/// reason is rejected by the request.
fn reason_for_override(asked: &Fields) -> Option<String> {
    asked.beyond_budget.as_ref()?;
    Some(asked.reason.trim().to_owned())
}

/// Returns the time `hours` hours from `now`. An empty field means a maintenance without an end.
fn parse_end(hours: &str, now: Timestamp) -> Result<Option<Timestamp>, Error> {
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
    fn every_action_has_a_button() {
        for &action in Action::ALL {
            assert!(
                !name_action(action).is_empty() && describe_effect(action).ends_with('.'),
                "{action}"
            );
        }
    }
}
