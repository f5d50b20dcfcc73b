//! Obstacles: facts of the whole rollout, or of a single node, against a start.

use jiff::Timestamp;

use super::fleet::{Control, Fleet, HaltReason, Node, Service, Silent};
use super::rule::Rule;
use super::windows::Opening;
use crate::effects::Effect;

/// Returns the rule against any start in the whole rollout. A halt comes first.
pub(super) fn find_stop(fleet: &Fleet, halt: Option<&HaltReason>, now: Timestamp) -> Option<Rule> {
    if let Some(reason) = halt {
        return Some(Rule::Halted(reason.clone()));
    }
    if fleet.control == Control::Superseded {
        return Some(Rule::Superseded);
    }
    if let Some(until) = fleet.frozen_until.filter(|until| *until > now) {
        return Some(Rule::Frozen { until });
    }
    match fleet.window {
        Opening::Open { until } if until.is_none_or(|until| until > now) => {
            fleet.silent.clone().map(|silent| match silent {
                Silent::Monitor(monitor) => Rule::MonitorSilent { monitor },
                Silent::Gate { name, is_pending } => Rule::NotCompared { name, is_pending },
            })
        }
        Opening::Open { .. } => Some(Rule::WindowClosed { opens: None }),
        Opening::Closed { opens } => Some(Rule::WindowClosed { opens }),
    }
}

/// Returns the reason why a node's facts are unknown.
pub(super) fn find_unreadable(node: &Node) -> Option<Rule> {
    let why = match (&node.condition.unreadable, node.member.service) {
        (Some(why), _) => why.clone(),
        (None, Service::Unknown) => "contact is lost".to_owned(),
        (None, Service::Serving | Service::Taken | Service::Out | Service::Joining) => return None,
    };
    Some(Rule::Unreadable { why })
}

/// Returns the node's own rule against a start: another owner, a flag, other work.
pub(super) fn find_obstacle(node: &Node, now: Timestamp) -> Option<Rule> {
    let condition = &node.condition;
    if let Some(unreadable) = find_unreadable(node) {
        return Some(unreadable);
    }
    if let Some(owner) = &node.member.others_drain {
        return Some(Rule::OthersDrain {
            owner: owner.clone(),
        });
    }
    if let Some(operation) = &condition.busy {
        return Some(Rule::Busy {
            operation: operation.clone(),
        });
    }
    if node.member.service == Service::Joining {
        return Some(Rule::Joining);
    }
    if condition.held {
        return Some(Rule::Held);
    }
    if condition.protected && node.effect >= Effect::Reboot {
        return Some(Rule::Protected {
            effect: node.effect,
        });
    }
    if condition.adopted && node.effect >= Effect::Reinstall {
        return Some(Rule::Adopted);
    }
    let until = condition.deferred_until.max(node.announced_for);
    until
        .filter(|until| *until > now)
        .map(|until| Rule::Deferred { until })
}
