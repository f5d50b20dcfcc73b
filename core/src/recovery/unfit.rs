//! The finding of a node's health check, passed to the scheduler as a drain reason and parsed by
//! Muster:
//!
//! `gate kernel.new: [action=reset_gpu] kernel.recovery_action is reset gpu, wanted none`
//!
//! The node writes the reason and the server reads the reason back. The action precedes the
//! sentences, because schedulers and the node truncate a long reason at the end.

use super::begin::{asked_by_drivers, asked_in};
use crate::gates::GateResult;
use crate::gates::xid::Action;

const GATE_CHARS: usize = 100;

/// The finding that made a node unfit for jobs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unfit {
    /// The id of the gate; `unknown` if the reason names no valid id.
    pub gate: String,
    /// The recovery action requested by the drivers; selects the first rung.
    pub action: Option<Action>,
    /// The finding in words.
    pub message: String,
}

impl Unfit {
    /// Builds the finding from a gate's result.
    pub fn of(result: &GateResult) -> Self {
        Self {
            gate: result.gate.clone(),
            action: asked_by_drivers(std::slice::from_ref(result), |_| true),
            message: result.reason.clone(),
        }
    }

    /// Parses a reason without Muster's prefix. Returns `None` for a reason not written by the
    /// health check.
    ///
    /// Nodes of the previous version wrote no action; the sentences are searched for an action
    /// instead.
    pub fn parse(reason: &str) -> Option<Self> {
        let (gate, rest) = reason.trim().strip_prefix("gate ")?.split_once(':')?;
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
        let known = !gate.is_empty() && gate.len() <= GATE_CHARS && gate.bytes().all(plain);
        let rest = rest.trim_start();
        let tagged = rest
            .strip_prefix("[action=")
            .and_then(|rest| rest.split_once(']'));
        let (action, message) = match tagged {
            // A newer node may request an action unknown to this server. A person must then inspect
            // the node.
            Some((token, message)) => (
                Some(Action::from_token(token).unwrap_or(Action::Inspect)),
                message,
            ),
            None => (asked_in(rest), rest),
        };
        Some(Self {
            gate: if known { gate } else { "unknown" }.to_owned(),
            action,
            message: message.trim_start().to_owned(),
        })
    }

    /// Returns the finding for users, without the action.
    pub fn describe(&self) -> String {
        format!("gate {}: {}", self.gate, self.message)
    }
}

impl std::fmt::Display for Unfit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "gate {}: ", self.gate)?;
        if let Some(action) = self.action {
            write!(f, "[action={}] ", action.token())?;
        }
        f.write_str(&self.message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unfit(action: Option<Action>) -> Unfit {
        Unfit {
            gate: "kernel.new".into(),
            action,
            message: "kernel.xid_fatal is 1 events, wanted == 0 events".into(),
        }
    }

    #[test]
    fn the_server_reads_every_reason_that_a_node_writes() {
        for action in Action::ALL.map(Some).into_iter().chain([None]) {
            let written = unfit(action);
            assert_eq!(Unfit::parse(&written.to_string()), Some(written));
        }
    }

    #[test]
    fn a_cut_reason_keeps_its_action() {
        let mut written = unfit(Some(Action::ResetGpu));
        written.message =
            "a finding of another metric; ".repeat(20) + "kernel.recovery_action is reset gpu";
        let cut: String = written.to_string().chars().take(200).collect();
        assert_eq!(Unfit::parse(&cut).unwrap().action, Some(Action::ResetGpu));
    }

    #[test]
    fn reasons_of_the_version_before_are_read_from_their_sentences() {
        let read = |text: &str| Unfit::parse(text).unwrap().action;
        assert_eq!(
            read(
                "gate kernel.new: kernel.xid_fatal is 1 events, wanted == 0 events; kernel.recovery_action is inspect, wanted != inspect"
            ),
            Some(Action::Inspect)
        );
        assert_eq!(
            read("gate kernel.new: kernel.recovery_action is reset gpu, wanted != reset gpu"),
            Some(Action::ResetGpu)
        );
        assert_eq!(
            read("gate kernel.new: kernel.recovery_action is hope"),
            None
        );
        assert_eq!(
            read("gate gpu.memory: gpu.remap_pending is yes, wanted == no"),
            None
        );
    }

    #[test]
    fn foreign_words_are_no_finding_and_a_foreign_gate_is_unknown() {
        assert_eq!(Unfit::parse("replacing fan 3"), None);
        assert_eq!(Unfit::parse("gate without an end"), None);
        assert_eq!(Unfit::parse("gate <b>: it fails").unwrap().gate, "unknown");
        let newer = Unfit::parse("gate gpu.x: [action=replace_gpu] it fails").unwrap();
        assert_eq!(
            (newer.action, newer.message.as_str()),
            (Some(Action::Inspect), "it fails")
        );
    }
}
