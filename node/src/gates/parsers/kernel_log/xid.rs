//! Xid and SXid lines: `NVRM: Xid (PCI:0000:9b:00): 119, pid=…`, `nvidia-nvswitch3: SXid (PCI:0000:05:00.0): 12028, Non-fatal, Link 32 …`. What they ask for
//! is policy, in muster-core; what the driver recommends for a GPU (Xid 154) wins.

use std::collections::BTreeMap;

use muster_core::gates::xid::{Action, XidOverrides, XidPolicy};

use crate::gates::parsers::scan;

/// The code by which the driver tells what it recommends.
const RECOVERY_ACTION_CHANGED: u32 = 154;
const NOTES_MAX: usize = 10;
/// Bound on what is kept; one more than any gate tells apart from many.
const EVENTS_MAX: usize = 100_000;

#[derive(Default)]
pub(super) struct Events {
    xids: Vec<Event>,
    sxids: Vec<Event>,
    /// By GPU, the latest.
    recommended: BTreeMap<String, Action>,
    unknown: usize,
    notes: Vec<String>,
}

struct Event {
    device: String,
    code: u32,
    stated: Option<bool>,
    message: String,
}

/// What the events of a log come to.
pub(super) struct Found {
    pub(super) counts: [(&'static str, usize); 5],
    pub(super) action: Action,
    pub(super) notes: Vec<String>,
}

impl Events {
    /// Takes a message if it is one of these.
    pub(super) fn note(&mut self, message: &str) -> bool {
        let is_switch = message.contains("SXid");
        if !is_switch && !message.contains("NVRM: Xid") {
            return false;
        }
        let Some(event) = read(message) else {
            // Known by its name and not by its code: it must not go unseen.
            self.unknown += 1;
            self.remark(message);
            return true;
        };
        if event.code == RECOVERY_ACTION_CHANGED && !is_switch {
            // `… changed from 0x0 (None) to 0x4 (Drain and Reset)`
            let word = message.rsplit_once(" to ").and_then(|(_, to)| scan::between(to, "(", ")"));
            self.recommended.insert(event.device.clone(), word.map_or(Action::Inspect, Action::recommended));
        }
        let events = if is_switch { &mut self.sxids } else { &mut self.xids };
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
        let (xid_rows, sxid_rows) = overrides.map_or((&none, &none), |rows| (&rows.xid, &rows.sxid));
        let (xid, sxid) = (XidPolicy::xid().with(xid_rows), XidPolicy::sxid().with(sxid_rows));
        let (xids, sxids) = (std::mem::take(&mut self.xids), std::mem::take(&mut self.sxids));
        let recommended = std::mem::take(&mut self.recommended);
        let (mut fatal, mut switch_fatal, mut hardest) = (0, 0, Action::Ignore);
        for event in &xids {
            let action = match recommended.get(&event.device) {
                Some(action) => Some(*action),
                None => xid.action(event.code, event.stated),
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
        Found { counts, action: hardest, notes: self.notes }
    }

    /// 1 for an event that is fatal.
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

/// `Xid (PCI:0000:9b:00): 119, …`: the device, the code, and whether the line calls itself fatal.
fn read(message: &str) -> Option<Event> {
    let (_, rest) = message.split_once("Xid (")?;
    let (device, rest) = rest.split_once("): ")?;
    let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (code, rest) = rest.split_at(digits);
    // The code ends with a comma, or with the line.
    if !rest.is_empty() && !rest.starts_with(',') {
        return None;
    }
    let stated = |word: &str| rest.split([' ', ',']).any(|candidate| candidate.eq_ignore_ascii_case(word));
    let stated = match (stated("Non-fatal") || stated("Nonfatal"), stated("Fatal")) {
        (true, _) => Some(false),
        (false, true) => Some(true),
        (false, false) => None,
    };
    let device = device.trim_start_matches("PCI:").to_ascii_lowercase();
    Some(Event { device, code: code.parse().ok()?, stated, message: scan::word(message) })
}
