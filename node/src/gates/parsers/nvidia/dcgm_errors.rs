//! Errors inside of results of DCGM. A result may be *Pass* and carry an error. The error's id and
//! severity decide whether the result counts as passed.
//!
//! Sources: NVIDIA/DCGM, dcgmlib/dcgm_errors.h (`dcgmError_t`, `dcgmErrorSeverity_t`, commit
//! 18b87c71) and dcgmlib/src/dcgm_errors.c (`dcgmErrorMeta`, the severity of each id, commit
//! 0d22068b).

use serde_json::Value;

use crate::gates::parsers::scan;

/// `DCGM_FR_OK`: no error.
const OK: u64 = 0;
/// Severities of `dcgmErrorSeverity_t`. 3 is an error unknown to DCGM.
const NONE: u64 = 0;
const MONITOR: u64 = 1;
const ISOLATE: u64 = 2;
const TRIAGE: u64 = 4;
const CONFIG: u64 = 5;
const RESET: u64 = 6;
/// Ids by the severity of DCGM's table, for documents without a severity.
const BY_SEVERITY: [(u64, &[u64]); 5] = [
    (
        ISOLATE,
        &[
            3, 4, 7, 8, 13, 15, 24, 33, 35, 36, 38, 39, 52, 57, 58, 70, 71, 79, 80, 81, 86, 87, 88,
            95, 98, 102, 103, 104, 105, 106, 107, 109, 111, 113, 114, 115, 116,
        ],
    ),
    (RESET, &[6, 25, 83, 84, 85]),
    (
        MONITOR,
        &[
            5, 10, 11, 12, 16, 17, 19, 26, 27, 32, 34, 40, 41, 42, 43, 51, 53, 61, 69, 74, 75, 76,
            108,
        ],
    ),
    (
        TRIAGE,
        &[
            9, 14, 22, 30, 31, 37, 44, 45, 49, 50, 54, 56, 59, 62, 63, 64, 65, 66, 67, 73, 77, 89,
            90, 91, 92, 93, 94, 97, 99, 100, 101, 110,
        ],
    ),
    (
        CONFIG,
        &[
            18, 20, 23, 28, 29, 46, 47, 48, 55, 60, 68, 72, 78, 82, 96, 112, 117,
        ],
    ),
];
/// Ids of errors of a test without work: no memory to test (56, 73), a missing library, file or
/// value, an aborted or disabled test. The GPU was not tested.
const UNTESTED: [u64; 40] = [
    18, 19, 21, 22, 26, 27, 28, 32, 37, 44, 47, 48, 49, 51, 53, 54, 56, 59, 60, 64, 65, 66, 67, 68,
    73, 74, 75, 76, 78, 82, 89, 90, 91, 92, 93, 94, 96, 97, 108, 117,
];

/// Effect of an error on the result, from the mildest to the worst.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Weight {
    /// The GPU works, and should be watched.
    Watch,
    /// The test did not do its work, or the error is unknown.
    Untested,
    /// A person must look: a setting, or a value below expectation.
    Look,
    /// The GPU, a link or a switch is broken or waits for a reset.
    Fault,
}

/// A warning of a result.
pub(super) struct Warning {
    /// DCGM's sentence.
    pub(super) text: String,
    pub(super) weight: Weight,
    id: Option<u64>,
}

impl Warning {
    /// Reads a warning: a string without an error, or an object with the sentence in `warning`.
    pub(super) fn read(warning: &Value) -> Self {
        let number = |key: &str| warning.get(key).and_then(Value::as_u64);
        let text = warning
            .as_str()
            .or_else(|| warning.get("warning")?.as_str());
        let id = number("error_id");
        Self {
            text: scan::word(text.unwrap_or_default()),
            weight: id.map_or(Weight::Watch, |id| weigh(id, number("error_severity"))),
            id,
        }
    }
}

impl std::fmt::Display for Warning {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.id {
            Some(id) => write!(f, "error {id}: {}", self.text),
            None => f.write_str(&self.text),
        }
    }
}

fn weigh(id: u64, stated: Option<u64>) -> Weight {
    let known = || {
        let of = |(_, ids): &&(u64, &[u64])| ids.contains(&id);
        BY_SEVERITY.iter().find(of).map(|(severity, _)| *severity)
    };
    match stated.or_else(known) {
        _ if id == OK => Weight::Watch,
        Some(ISOLATE | RESET) => Weight::Fault,
        _ if UNTESTED.contains(&id) => Weight::Untested,
        Some(NONE | MONITOR) => Weight::Watch,
        Some(TRIAGE | CONFIG) => Weight::Look,
        Some(_) | None => Weight::Untested,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_id_of_the_table_has_one_severity() {
        let ids: Vec<u64> = BY_SEVERITY
            .iter()
            .flat_map(|(_, ids)| ids.iter().copied())
            .collect();
        let distinct: BTreeSet<u64> = ids.iter().copied().collect();
        assert_eq!(ids.len(), distinct.len());
        // 0, 1, 2 and 21 have the severity of an unknown error.
        let missing: Vec<u64> = (0..=117).filter(|id| !distinct.contains(id)).collect();
        assert_eq!(missing, [0, 1, 2, 21]);
        assert!(distinct.iter().all(|id| *id <= 117));
    }

    #[test]
    fn the_id_and_the_severity_decide() {
        for (id, severity, wanted) in [
            (0, None, Weight::Watch),
            // No memory to test, also where the document says to watch.
            (56, Some(MONITOR), Weight::Untested),
            (56, None, Weight::Untested),
            (73, Some(TRIAGE), Weight::Untested),
            // A double-bit error, a remapped row that waits for a reset.
            (4, None, Weight::Fault),
            (85, Some(RESET), Weight::Fault),
            // Single-bit errors.
            (5, None, Weight::Watch),
            (5, Some(ISOLATE), Weight::Fault),
            // A low bandwidth, persistence mode.
            (30, None, Weight::Look),
            (29, Some(CONFIG), Weight::Look),
            // Errors of a later version.
            (900, None, Weight::Untested),
            (900, Some(3), Weight::Untested),
            (900, Some(MONITOR), Weight::Watch),
            (900, Some(ISOLATE), Weight::Fault),
            (900, Some(9), Weight::Untested),
        ] {
            assert_eq!(weigh(id, severity), wanted, "{id} {severity:?}");
        }
    }
}
