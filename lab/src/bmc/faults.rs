//! Faults on request: the ways in which a BMC can spoil the requests it receives.

use std::sync::Mutex;

use http::Method;
use serde::{Deserialize, Serialize};

/// Maximum number of active faults for a BMC.
const MAX_FAULTS: usize = 32;

/// A fault that is active until its request count is used up or the faults are cleared.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fault {
    /// The effect on a matching request.
    pub kind: FaultKind,
    /// Number of requests to spoil; `None` means every request until the fault is cleared.
    #[serde(default)]
    pub requests: Option<u32>,
    /// Spoil only requests whose path starts with this prefix.
    #[serde(default)]
    pub path_prefix: Option<String>,
    /// Spoil only requests of this HTTP method, written in capitals.
    #[serde(default)]
    pub method: Option<String>,
}

/// The effect of a fault on a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "fault", rename_all = "snake_case")]
pub enum FaultKind {
    /// The request is read but never answered; the connection closes after ten minutes.
    Hang,
    /// The answer is 503 with a `Retry-After` header.
    Status503 {
        /// The seconds in `Retry-After`.
        retry_after_s: u32,
    },
    /// A write is answered with 204 but has no effect. Reads are answered normally.
    AcceptedNothingHappens,
    /// The request is performed, then the connection is closed without an answer.
    LostReply,
    /// The answer is not a valid Redfish document.
    Garbage {
        /// The kind of invalid answer.
        shape: Garbage,
    },
    /// The account's password no longer matches the client's copy: every credential is rejected.
    PasswordChanged,
    /// The answer is delayed.
    Slow {
        /// Delay in milliseconds, at most ten minutes.
        ms: u64,
    },
    /// The task of an update stays in the state `Running`.
    UpdateNeverEnds,
    /// The task of an update ends in `Exception`, with a message that gives the reason.
    UpdateFails,
    /// An update is reported as `Completed`, but the version stays the same.
    UpdateChangesNothing,
    /// BIOS settings are accepted but never applied.
    SettingsDropped,
}

/// The kinds of invalid answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Garbage {
    /// 200 with a body that is not JSON.
    BadJson,
    /// 200 with a body shorter than its announced length.
    Truncated,
    /// 200 with 32 MiB of valid JSON.
    Huge,
    /// 200 with JSON nested 100,000 levels deep.
    Deep,
}

impl Fault {
    /// Builds a fault that applies to every request until the faults are cleared.
    pub fn always(kind: FaultKind) -> Self {
        Self {
            kind,
            requests: None,
            path_prefix: None,
            method: None,
        }
    }

    /// Builds a fault that applies to the next `requests` matching requests.
    pub fn next(requests: u32, kind: FaultKind) -> Self {
        Self {
            requests: Some(requests),
            ..Self::always(kind)
        }
    }

    /// Restricts the fault to paths starting with `path_prefix`.
    pub fn at(self, path_prefix: &str) -> Self {
        Self {
            path_prefix: Some(path_prefix.to_owned()),
            ..self
        }
    }

    /// Restricts the fault to requests of this method.
    pub fn on(self, method: &str) -> Self {
        Self {
            method: Some(method.to_owned()),
            ..self
        }
    }

    /// Whether the fault acts inside an update or a settings change, behind the HTTP requests.
    fn inside(&self) -> bool {
        matches!(
            self.kind,
            FaultKind::UpdateNeverEnds
                | FaultKind::UpdateFails
                | FaultKind::UpdateChangesNothing
                | FaultKind::SettingsDropped
        )
    }

    fn takes(&self, method: &Method, path: &str) -> bool {
        if self.inside() {
            return false;
        }
        let reads = matches!(*method, Method::GET | Method::HEAD);
        let passes_by = self.kind == FaultKind::AcceptedNothingHappens && reads;
        let path_fits = self
            .path_prefix
            .as_ref()
            .is_none_or(|prefix| path.starts_with(prefix));
        !passes_by
            && path_fits
            && self
                .method
                .as_ref()
                .is_none_or(|wanted| wanted == method.as_str())
    }
}

/// The faults of a BMC, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Faults(Mutex<Vec<Fault>>);

impl Faults {
    /// Adds a fault; removes the oldest fault first when the list is full.
    pub(crate) fn inject(&self, fault: Fault) {
        let mut faults = self.lock();
        if faults.len() == MAX_FAULTS {
            faults.remove(0);
        }
        faults.push(fault);
    }

    /// Removes all faults.
    pub(crate) fn clear(&self) {
        self.lock().clear();
    }

    /// Returns the active faults.
    pub(crate) fn list(&self) -> Vec<Fault> {
        self.lock().clone()
    }

    /// Finds the first fault that matches this request and counts the request against the fault.
    pub(crate) fn take(&self, method: &Method, path: &str) -> Option<FaultKind> {
        self.take_by(|fault| fault.takes(method, path))
    }

    /// Whether a fault of this kind is active inside the BMC; each call that finds the fault counts
    /// as a request.
    pub(crate) fn take_inside(&self, kind: &FaultKind) -> bool {
        self.take_by(|fault| fault.kind == *kind).is_some()
    }

    fn take_by(&self, takes: impl Fn(&Fault) -> bool) -> Option<FaultKind> {
        let mut faults = self.lock();
        let index = faults.iter().position(takes)?;
        let kind = faults[index].kind.clone();
        if let Some(left) = &mut faults[index].requests {
            *left = left.saturating_sub(1);
            if *left == 0 {
                faults.remove(index);
            }
        }
        Some(kind)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Fault>> {
        self.0.lock().expect("no holder of the faults panics")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_takes_what_it_names_and_no_more() {
        let faults = Faults::default();
        faults.inject(Fault::next(2, FaultKind::AcceptedNothingHappens).at("/redfish/v1/Systems"));
        let post = |path| faults.take(&Method::POST, path).is_some();
        assert!(!post("/redfish/v1/Chassis/1"));
        assert!(
            faults.take(&Method::GET, "/redfish/v1/Systems/1").is_none(),
            "reads pass by"
        );
        assert!(post("/redfish/v1/Systems/1") && post("/redfish/v1/Systems/1"));
        assert!(!post("/redfish/v1/Systems/1") && faults.list().is_empty());
    }
}
