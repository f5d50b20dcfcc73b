//! Xid and SXid lines: `NVRM: Xid (PCI:0000:9b:00): 119, pid=…`, `nvidia-nvswitch3: SXid
//! (PCI:0000:05:00.0): 12028, Non-fatal, Link 32 …`. The policy in muster-core maps each code to an
//! action. A driver's recommendation for a GPU (Xid 154) overrides the policy.

use std::collections::BTreeMap;

use muster_core::gates::xid::{Action, XidOverrides, XidPolicy};

use crate::gates::parsers::scan;

/// Code of the driver's recommendation.
const RECOVERY_ACTION_CHANGED: u32 = 154;
const NOTES_MAX: usize = 10;
/// `TASK_COMM_LEN` of Linux, without the final zero byte.
const NAME_MAX: usize = 15;
/// Maximum number of stored events per kind. No gate distinguishes larger counts.
const EVENTS_MAX: usize = 100_000;

#[derive(Default)]
pub(super) struct Events {
    xids: Vec<Event>,
    sxids: Vec<Event>,
    /// Latest recommendation per GPU, with the number of Xid events up to and including the
    /// recommendation.
    recommended: BTreeMap<String, (Action, usize)>,
    unknown: usize,
    notes: Vec<String>,
}

struct Event {
    device: String,
    code: u32,
    stated: Option<bool>,
    message: String,
}

/// Counts and the strongest action for the events of a log.
pub(super) struct Found {
    pub(super) counts: [(&'static str, usize); 5],
    pub(super) action: Action,
    pub(super) notes: Vec<String>,
}

impl Events {
    /// Records the message and returns `true` for an Xid or SXid line.
    pub(super) fn note(&mut self, message: &str) -> bool {
        let is_switch = message.starts_with("nvidia-nvswitch") && message.contains("SXid");
        if !is_switch && !message.starts_with("NVRM: Xid") {
            return false;
        }
        let Some(event) = read(message) else {
            // An Xid line without a readable code counts as unknown, so the event stays visible.
            self.unknown += 1;
            self.remark(message);
            return true;
        };
        if event.code == RECOVERY_ACTION_CHANGED && !is_switch {
            // `… changed from 0x0 (None) to 0x4 (Drain and Reset)`
            let word = message
                .rsplit_once(" to ")
                .and_then(|(_, to)| scan::between(to, "(", ")"));
            let action = word.map_or(Action::Inspect, Action::recommended);
            self.recommended
                .insert(event.device.clone(), (action, self.xids.len() + 1));
        }
        let events = if is_switch {
            &mut self.sxids
        } else {
            &mut self.xids
        };
        if events.len() < EVENTS_MAX {
            events.push(event);
        }
        true
    }

    fn remark(&mut self, message: &str) {
        if self.notes.len() < NOTES_MAX {
            self.notes.push(scan::word(message));
        }
    }

    pub(super) fn judge(mut self, overrides: Option<&XidOverrides>) -> Found {
        let none = Vec::new();
        let (xid_rows, sxid_rows) =
            overrides.map_or((&none, &none), |rows| (&rows.xid, &rows.sxid));
        let (xid, sxid) = (
            XidPolicy::xid().with(xid_rows),
            XidPolicy::sxid().with(sxid_rows),
        );
        let (xids, sxids) = (
            std::mem::take(&mut self.xids),
            std::mem::take(&mut self.sxids),
        );
        let recommended = std::mem::take(&mut self.recommended);
        let (mut fatal, mut switch_fatal, mut hardest) = (0, 0, Action::Ignore);
        for (at, event) in xids.iter().enumerate() {
            let action = match recommended.get(&event.device) {
                // A recommendation of "None" covers only earlier events. A later event follows the
                // policy.
                Some((action, come)) if *action != Action::Ignore || at < *come => Some(*action),
                _ => xid.action(event.code, event.stated),
            };
            fatal += self.weigh(event, action, &mut hardest);
        }
        for event in &sxids {
            switch_fatal += self.weigh(event, sxid.action(event.code, event.stated), &mut hardest);
        }
        let counts = [
            ("kernel.xid", xids.len()),
            ("kernel.xid_fatal", fatal),
            ("kernel.xid_unknown", self.unknown),
            ("kernel.sxid", sxids.len()),
            ("kernel.sxid_fatal", switch_fatal),
        ];
        Found {
            counts,
            action: hardest,
            notes: self.notes,
        }
    }

    /// Returns 1 for a fatal event and 0 for any other. An event without an action counts as
    /// unknown.
    fn weigh(&mut self, event: &Event, action: Option<Action>, hardest: &mut Action) -> usize {
        let Some(action) = action else {
            self.unknown += 1;
            self.remark(&event.message);
            return 0;
        };
        *hardest = action.max(*hardest);
        if !action.is_fatal() {
            return 0;
        }
        self.remark(&format!("{}: {}", action.as_str(), event.message));
        1
    }
}

/// Parses `Xid (PCI:0000:9b:00): 119, …`: the device, the code, and the severity stated in the
/// line, if any.
fn read(message: &str) -> Option<Event> {
    let (_, rest) = message.split_once("Xid (")?;
    let (device, rest) = rest.split_once("): ")?;
    let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (code, rest) = rest.split_at(digits);
    // The code ends at a comma or at the end of the line.
    if !rest.is_empty() && !rest.starts_with(',') {
        return None;
    }
    let rest = past_the_name(rest);
    let stated = |word: &str| {
        rest.split([' ', ','])
            .any(|candidate| candidate.eq_ignore_ascii_case(word))
    };
    let stated = match (stated("Non-fatal") || stated("Nonfatal"), stated("Fatal")) {
        (true, _) => Some(false),
        (false, true) => Some(true),
        (false, false) => None,
    };
    let device = device.trim_start_matches("PCI:").to_ascii_lowercase();
    Some(Event {
        device,
        code: code.parse().ok()?,
        stated,
        message: scan::word(message),
    })
}

/// Returns the text after the process name in an event. The user of the process chose the name, so
/// the name may contain any words. The name has at most [`NAME_MAX`] bytes, and each byte may be
/// escaped as `\x0a` (`dmesg`) or `\012`.
fn past_the_name(rest: &str) -> &str {
    let Some((_, named)) = rest.split_once("name=") else {
        return rest;
    };
    let mut behind = named;
    for _ in 0..NAME_MAX {
        let escaped = behind
            .strip_prefix('\\')
            .is_some_and(|code| code.starts_with(|c: char| c == 'x' || c.is_ascii_digit()));
        let length = if escaped { 4 } else { 1 };
        behind = behind
            .char_indices()
            .nth(length)
            .map_or("", |(at, _)| &behind[at..]);
    }
    behind
}

#[cfg(test)]
mod tests {
    use super::*;

    const GPU: &str = "NVRM: Xid (PCI:0000:9b:00):";

    fn found(messages: &[String]) -> Found {
        let mut events = Events::default();
        for message in messages {
            assert!(events.note(message), "{message}");
        }
        events.judge(None)
    }

    fn fatal(message: String) -> usize {
        found(&[message]).counts[1].1
    }

    #[test]
    fn a_process_cannot_speak_for_the_driver() {
        let event = |code: u32, name: &str, words: &str| {
            format!("{GPU} {code}, pid=4242, name={name}, {words}")
        };
        for name in [
            "a Non-fatal b",
            "Nonfatal",
            ", Non-fatal, ",
            "a\\x0a Non-fatal ",
        ] {
            assert_eq!(
                fatal(event(79, name, "GPU has fallen off the bus.")),
                1,
                "{name}"
            );
        }
        for name in [
            "a Fatal",
            "Fatal",
            "a, Fatal, b",
            "\\x01\\x02\\x03\\x04\\x05 Fatal",
        ] {
            assert_eq!(
                fatal(event(
                    13,
                    name,
                    "Graphics SM Warp Exception on (GPC 1, TPC 0)"
                )),
                0,
                "{name}"
            );
        }
        assert_eq!(
            fatal(event(149, "x", "NETIR_LINK_EVT Fatal XC0 i0 Link 08")),
            1,
            "the driver's own word"
        );
    }

    #[test]
    fn that_nothing_needs_to_be_done_is_said_of_what_had_come() {
        let of = |code: u32, words: &str| format!("{GPU} {code}, {words}");
        let (lost, none) = (
            of(79, "GPU has fallen off the bus."),
            of(154, "changed from 0x1 (GPU Reset Required) to 0x0 (None)"),
        );
        assert_eq!(found(&[lost.clone(), none.clone()]).action, Action::Ignore);
        assert!(found(&[none.clone(), lost.clone()]).action.is_fatal());
        let reboot = of(154, "changed from 0x0 (None) to 0x2 (Node Reboot Required)");
        let after = found(&[none, reboot, of(63, "Row Remapper")]);
        assert_eq!(
            after.action,
            Action::RebootNode,
            "it stands until another is told"
        );
    }
}
