//! Faults on request: what a BMC in a bad mood does to the requests it gets.

use std::sync::Mutex;

use http::Method;
use serde::{Deserialize, Serialize};

/// The most faults one BMC holds at once.
const MAX_FAULTS: usize = 32;

/// A fault that waits for requests to spoil.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fault {
    /// What happens to a request it takes.
    pub kind: FaultKind,
    /// How many requests it takes; without, all until it is cleared.
    #[serde(default)]
    pub requests: Option<u32>,
    /// Only requests whose path starts so.
    #[serde(default)]
    pub path_prefix: Option<String>,
    /// Only requests of this method, in capitals.
    #[serde(default)]
    pub method: Option<String>,
}

/// What happens to a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "fault", rename_all = "snake_case")]
pub enum FaultKind {
    /// It is taken and never answered.
    Hang,
    /// 503 with `Retry-After`.
    Status503 {
        /// Seconds to wait, as told to the client.
        retry_after_s: u32,
    },
    /// A write is answered 204 and nothing is done. Reads pass by.
    AcceptedNothingHappens,
    /// It is done, and the connection is closed without an answer.
    LostReply,
    /// The answer is rubbish.
    Garbage {
        /// Of which sort.
        shape: Garbage,
    },
    /// The account's password is no longer the one the client knows; every credential is wrong.
    PasswordChanged,
    /// The answer comes late.
    Slow {
        /// By this many milliseconds, at most ten minutes.
        ms: u64,
    },
    /// An update's task stays under way.
    UpdateNeverEnds,
    /// An update's task ends badly, and says why.
    UpdateFails,
    /// An update is called done, and the version stays what it was.
    UpdateChangesNothing,
    /// BIOS settings are taken, and never hold.
    SettingsDropped,
}

/// Sorts of rubbish.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Garbage {
    /// 200 with a body that is not JSON.
    BadJson,
    /// 200 whose body ends before its announced length.
    Truncated,
    /// 200 with 32 MiB of valid JSON.
    Huge,
    /// 200 with JSON nested 100,000 deep.
    Deep,
}

impl Fault {
    /// A fault for every request until it is cleared.
    pub fn always(kind: FaultKind) -> Self {
        Self {
            kind,
            requests: None,
            path_prefix: None,
            method: None,
        }
    }

    /// A fault for the next `requests` requests.
    pub fn next(requests: u32, kind: FaultKind) -> Self {
        Self {
            requests: Some(requests),
            ..Self::always(kind)
        }
    }

    /// The same fault, only for paths that start so.
    pub fn at(self, path_prefix: &str) -> Self {
        Self {
            path_prefix: Some(path_prefix.to_owned()),
            ..self
        }
    }

    /// The same fault, only for this method.
    pub fn on(self, method: &str) -> Self {
        Self {
            method: Some(method.to_owned()),
            ..self
        }
    }

    /// Whether it spoils what happens behind the requests.
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

/// The faults of one BMC, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Faults(Mutex<Vec<Fault>>);

impl Faults {
    /// Adds one; the oldest goes when there are too many.
    pub(crate) fn inject(&self, fault: Fault) {
        let mut faults = self.lock();
        if faults.len() == MAX_FAULTS {
            faults.remove(0);
        }
        faults.push(fault);
    }

    /// Removes all.
    pub(crate) fn clear(&self) {
        self.lock().clear();
    }

    /// The faults in force.
    pub(crate) fn list(&self) -> Vec<Fault> {
        self.lock().clone()
    }

    /// The fault that takes this request, counted down.
    pub(crate) fn take(&self, method: &Method, path: &str) -> Option<FaultKind> {
        self.take_by(|fault| fault.takes(method, path))
    }

    /// Whether such a fault spoils what is about to happen behind the requests; counted down.
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
