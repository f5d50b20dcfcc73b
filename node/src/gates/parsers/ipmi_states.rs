//! Meanings of the states of discrete sensors. A BMC calls a discrete sensor `ok` as long as the
//! sensor answers: the words of the asserted states tell whether the part works.
//!
//! Sources: IPMI 2.0, tables 42-2 (generic states) and 42-3 (states by sensor type). Words:
//! ipmitool 1.8, include/ipmitool/ipmi_sel.h, `generic_event_types` and
//! `sensor_specific_event_types` (commit 05dc409b). States without a row are healthy, such as a
//! present drive, or have no meaning by the standard, such as states of a vendor.

/// Meaning of a state for the part, from the mildest to the worst.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Meaning {
    /// The part works, and a person should look.
    Warning,
    /// The part works without its spare.
    NotRedundant,
    /// A power supply, or the power of another part, fails.
    Power,
    /// The part failed.
    Fault,
}

use Meaning::{Fault, NotRedundant, Power, Warning};

/// States of a sensor type: the offset, ipmitool's words, and the meaning.
type States = &'static [(u8, &'static str, Meaning)];

/// Generic states, by the event type (table 42-2).
const GENERIC: &[(u8, States)] = &[
    (0x04, &[(0x01, "Predictive Failure Asserted", Fault)]),
    (0x05, &[(0x01, "Limit Exceeded", Warning)]),
    (0x06, &[(0x01, "Performance Lags", Warning)]),
    (
        0x07,
        &[
            (0x01, "Transition to Non-critical from OK", Warning),
            (0x02, "Transition to Critical from less severe", Fault),
            (
                0x03,
                "Transition to Non-recoverable from less severe",
                Fault,
            ),
            (0x04, "Transition to Non-critical from more severe", Warning),
            (0x05, "Transition to Critical from Non-recoverable", Fault),
            (0x06, "Transition to Non-recoverable", Fault),
        ],
    ),
    // Fans of several makers have these states.
    (
        0x0a,
        &[
            (0x04, "Transition to Off Line", Warning),
            (0x06, "Transition to Degraded", Fault),
            (0x08, "Install Error", Fault),
        ],
    ),
    (
        0x0b,
        &[
            (0x01, "Redundancy Lost", NotRedundant),
            (0x02, "Redundancy Degraded", NotRedundant),
            (
                0x03,
                "Non-Redundant: Sufficient from Redundant",
                NotRedundant,
            ),
            (
                0x04,
                "Non-Redundant: Sufficient from Insufficient",
                NotRedundant,
            ),
            (0x05, "Non-Redundant: Insufficient Resources", NotRedundant),
            (
                0x06,
                "Redundancy Degraded from Fully Redundant",
                NotRedundant,
            ),
            (0x07, "Redundancy Degraded from Non-Redundant", NotRedundant),
        ],
    ),
];
/// States by the sensor type (table 42-3).
const SPECIFIC: &[(u8, States)] = &[
    // Processor
    (
        0x07,
        &[
            (0x00, "IERR", Fault),
            (0x01, "Thermal Trip", Fault),
            (0x02, "FRB1/BIST failure", Fault),
            (0x03, "FRB2/Hang in POST failure", Fault),
            (0x04, "FRB3/Processor startup/init failure", Fault),
            (0x05, "Configuration Error", Fault),
            (0x06, "SM BIOS Uncorrectable CPU-complex Error", Fault),
            (0x0a, "Throttled", Warning),
            (0x0b, "Uncorrectable machine check exception", Fault),
            (0x0c, "Correctable machine check error", Warning),
        ],
    ),
    // Power supply. The words of offset 5 have a comma: `AC out-of-range, but present`.
    (
        0x08,
        &[
            (0x01, "Failure detected", Power),
            (0x02, "Predictive failure", Power),
            (0x03, "Power Supply AC lost", Power),
            (0x04, "AC lost or out-of-range", Power),
            (0x05, "AC out-of-range", Power),
            (0x06, "Config Error", Power),
            (0x06, "Config Error: Vendor Mismatch", Power),
            (0x06, "Config Error: Revision Mismatch", Power),
            (0x06, "Config Error: Processor Missing", Power),
            (0x06, "Config Error: Power Supply Rating Mismatch", Power),
            (0x06, "Config Error: Voltage Rating Mismatch", Power),
        ],
    ),
    // Power unit. Offsets 6 and 7 have the words of a power supply.
    (
        0x09,
        &[
            (0x02, "240VA power down", Fault),
            (0x03, "Interlock power down", Fault),
            (0x04, "AC lost", Power),
            (0x05, "Soft-power control failure", Fault),
        ],
    ),
    // Memory. Offset 7 has the words of a processor, and offset 9 also.
    (
        0x0c,
        &[
            (0x00, "Correctable ECC", Warning),
            (0x01, "Uncorrectable ECC", Fault),
            (0x02, "Parity", Fault),
            (0x03, "Memory Scrub Failed", Fault),
            (0x04, "Memory Device Disabled", Fault),
            (0x05, "Correctable ECC logging limit reached", Warning),
            (0x0a, "Critical Overtemperature", Fault),
        ],
    ),
    // Drive slot. Offset 2 has the words of a power supply, and a drive is none.
    (
        0x0d,
        &[
            (0x01, "Drive Fault", Fault),
            (0x05, "In Critical Array", NotRedundant),
            (0x06, "In Failed Array", Fault),
            (0x07, "Rebuild In Progress", Warning),
            (0x08, "Rebuild Aborted", Fault),
        ],
    ),
    // System event
    (
        0x12,
        &[(0x02, "Undetermined system hardware failure", Fault)],
    ),
    // Critical interrupt
    (
        0x13,
        &[
            (0x00, "NMI/Diag Interrupt", Warning),
            (0x01, "Bus Timeout", Fault),
            (0x02, "I/O Channel check NMI", Fault),
            (0x03, "Software NMI", Warning),
            (0x04, "PCI PERR", Fault),
            (0x05, "PCI SERR", Fault),
            (0x06, "EISA failsafe timeout", Fault),
            (0x07, "Bus Correctable error", Warning),
            (0x08, "Bus Uncorrectable error", Fault),
            (0x09, "Fatal NMI", Fault),
            (0x0a, "Bus Fatal Error", Fault),
            (0x0b, "Bus Degraded", Fault),
        ],
    ),
    // Chip set. Offset 1 has the words of a processor.
    (0x19, &[(0x00, "Soft Power Control Failure", Fault)]),
    // Slot and connector
    (0x21, &[(0x00, "Fault Status", Fault)]),
    // LAN
    (0x27, &[(0x00, "Heartbeat Lost", Warning)]),
    // Management subsystem
    (
        0x28,
        &[
            (0x00, "Sensor access degraded or unavailable", Warning),
            (0x01, "Controller access degraded or unavailable", Warning),
            (0x02, "Management controller off-line", Warning),
            (0x03, "Management controller unavailable", Warning),
            (0x04, "Sensor failure", Warning),
            (0x05, "FRU failure", Fault),
        ],
    ),
    // Battery
    (0x29, &[(0x00, "Low", Warning), (0x01, "Failed", Fault)]),
    // FRU state
    (0x2c, &[(0x07, "Communication lost", Warning)]),
];
/// Entity of processors (IPMI 2.0, table 43-13).
const PROCESSOR: &str = "3";
/// A disabled processor (type 07h, offset 8). Other parts may be disabled by design (type 25h).
const DISABLED: &str = "Disabled";

/// Returns the worst meaning among the states of a reading: `Drive Present, Drive Fault`.
pub(super) fn worst_state(reading: &str, entity: &str) -> Option<Meaning> {
    reading
        .split(", ")
        .filter_map(|state| meaning_of(state.trim(), entity))
        .max()
}

/// The words are the same for several types, apart from capital letters.
fn meaning_of(state: &str, entity: &str) -> Option<Meaning> {
    if state == DISABLED && entity == PROCESSOR {
        return Some(Warning);
    }
    let states = [GENERIC, SPECIFIC]
        .into_iter()
        .flatten()
        .flat_map(|(_, states)| *states);
    states
        .filter(|(_, words, _)| words.eq_ignore_ascii_case(state))
        .map(|(_, _, meaning)| *meaning)
        .max()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sensor type, entity, and the reading.
    type Sensor = (u8, &'static str, &'static str);

    #[test]
    fn the_states_of_each_type_mean_what_the_standard_says() {
        let faults: [Sensor; 16] = [
            (0x07, "3", "IERR, Presence detected"),
            (
                0x07,
                "3",
                "Presence detected, Uncorrectable machine check exception",
            ),
            (0x07, "3", "Presence detected, Configuration Error"),
            (0x09, "21", "240VA power down"),
            (0x0c, "32", "Presence Detected, Uncorrectable ECC"),
            (0x0c, "8", "Memory Device Disabled"),
            (0x0c, "32", "Critical Overtemperature"),
            (0x0d, "4", "Drive Present, Drive Fault"),
            (0x0d, "26", "Drive Present, In Failed Array"),
            (0x13, "7", "PCI SERR"),
            (0x13, "34", "Bus Uncorrectable error, Bus Fatal Error"),
            (0x21, "11", "Fault Status, Device Installed"),
            (0x28, "6", "FRU failure"),
            (0x29, "40", "Failed, Presence Detected"),
            (0x04, "29", "Transition to Degraded"),
            (0x04, "29", "Predictive Failure Asserted"),
        ];
        for (kind, entity, reading) in faults {
            assert_eq!(
                worst_state(reading, entity),
                Some(Fault),
                "{kind:02x}h {reading}"
            );
        }
        // A predictive failure of a drive has the words of a power supply.
        for reading in [
            "Drive Present, Predictive Failure",
            "Presence detected, AC out-of-range, but present",
            "Config Error: Vendor Mismatch",
        ] {
            assert_eq!(worst_state(reading, "10"), Some(Power), "{reading}");
        }
        let warnings: [Sensor; 7] = [
            (0x07, "3", "Presence detected, Throttled"),
            (0x07, "3", "Disabled"),
            (
                0x0c,
                "32",
                "Correctable ECC, Correctable ECC logging limit reached",
            ),
            (0x0d, "4", "Drive Present, Rebuild In Progress"),
            (0x13, "7", "Bus Correctable error"),
            (0x28, "6", "Sensor failure"),
            (0x29, "40", "Low"),
        ];
        for (kind, entity, reading) in warnings {
            assert_eq!(
                worst_state(reading, entity),
                Some(Warning),
                "{kind:02x}h {reading}"
            );
        }
        assert_eq!(worst_state("In Critical Array", "4"), Some(NotRedundant));
        assert_eq!(
            worst_state("Low, Failed", "40"),
            Some(Fault),
            "the worst counts"
        );
    }

    #[test]
    fn healthy_states_and_readings_are_silent() {
        for (entity, reading) in [
            ("4", "Drive Present"),
            ("4", "Drive Present, Hot Spare, Parity Check In Progress"),
            ("3", "Presence detected"),
            ("10", "Presence detected, Power Supply Inactive"),
            ("29", "39 percent, Transition to Running"),
            ("29", "Fully Redundant"),
            ("32", "Presence Detected, Spare"),
            ("40", "Presence Detected"),
            ("11", "Device Installed, Spare Device"),
            ("23", "General Chassis intrusion"),
            ("7", "State Deasserted"),
            ("7", "Predictive Failure Deasserted"),
            ("7", "Limit Not Exceeded"),
            ("7", "Transition to OK"),
            ("12", "Disabled"),
            ("7", "100 Watts, Device Enabled"),
            ("3", "41 degrees C"),
            ("7", "S0/G0: working"),
            ("7", "Drive Faults"),
            ("7", ""),
        ] {
            assert_eq!(worst_state(reading, entity), None, "{reading}");
        }
    }
}
