//! Parser for `ipmitool sdr elist`: a line for each sensor of the node's own BMC, `NAME
//! NUMBER
//! STATE
//! ENTITY
//! READING`.

use std::collections::BTreeSet;

use super::ipmi_states::{Meaning, worst_state};
use super::{Answer, Reading, scan};

/// Maximum sensors of a BMC. The largest known BMCs have a few hundred.
const SENSORS_MAX: usize = 2000;
/// Maximum bytes of a sensor's name (IPMI 2.0, table 43-1, ID string).
const NAME_MAX: usize = 16;
/// Entity of power supplies (IPMI 2.0, table 43-13).
const POWER_SUPPLY: &str = "10";
/// State of a present power supply, in ipmitool's words.
const PRESENT: &str = "Presence detected";

/// Range of a reading (IPMI 2.0, section 35.14), from ipmitool's abbreviations.
#[derive(Clone, Copy, PartialEq)]
enum State {
    Fine,
    /// Beyond the non-critical threshold.
    Warning,
    /// Beyond the critical or the non-recoverable threshold.
    Critical,
    /// Disabled, or without a part to measure.
    NoReading,
}

pub(super) fn parse(answer: &Answer<'_>) -> Result<Reading, String> {
    if answer.exit != 0 {
        return read_failed(answer);
    }
    scan::whole(answer.text)?;
    let mut reading = Reading::default();
    let (mut seen, mut counts) = (Vec::new(), Counts::default());
    for line in answer.text.lines() {
        let sensor =
            read(line).ok_or_else(|| format!("{:?} is not understood", scan::word(line)))?;
        // A sensor number is unique only together with owner and LUN (IPMI 2.0, section 43.1), and
        // ipmitool omits both. Name and entity therefore complete the key.
        let who = (sensor.number, sensor.name, sensor.entity, sensor.instance);
        if seen.contains(&who) || seen.len() >= SENSORS_MAX {
            return Err(format!(
                "sensor {} stands there twice",
                scan::word(sensor.number)
            ));
        }
        seen.push(who);
        if let Some(trouble) = counts.add(&sensor) {
            reading.notes.push(describe(&sensor, trouble));
        }
    }
    if counts.read == 0 {
        return Err("no sensor reads anything".into());
    }
    reading.count("bmc.sensors", counts.read);
    reading.count("bmc.warning", counts.warning);
    reading.count("bmc.critical", counts.critical);
    reading.count("psu.failing", counts.failing);
    reading.count("psu.present", counts.present.len());
    reading.count("bmc.not_redundant", counts.not_redundant);
    Ok(reading)
}

/// The reading of a run with a failure status. ipmitool ends with 1 after any sensor that it could
/// not ask. Sensors before with a fault are still faults; other lists are no answer.
fn read_failed(answer: &Answer<'_>) -> Result<Reading, String> {
    let (mut faults, mut counts) = (Vec::new(), Counts::default());
    for sensor in answer.text.lines().take(SENSORS_MAX).filter_map(read) {
        let before = counts.critical + counts.failing;
        if let Some(trouble) = counts.add(&sensor)
            && counts.critical + counts.failing > before
        {
            faults.push(describe(&sensor, trouble));
        }
    }
    match faults.is_empty() {
        true => Err(format!(
            "the BMC was not asked (status {}): {}",
            answer.exit,
            answer.reason()
        )),
        false => Ok(Reading::of_faults(faults)),
    }
}

/// `PS2 fails: Presence detected, Failure detected`
fn describe(sensor: &Sensor<'_>, trouble: &str) -> String {
    format!(
        "{} {trouble}: {}",
        scan::word(sensor.name),
        scan::word(sensor.reading)
    )
}

#[derive(Default)]
struct Counts<'a> {
    read: usize,
    warning: usize,
    critical: usize,
    failing: usize,
    not_redundant: usize,
    /// Instances of the power supplies reporting their presence.
    present: BTreeSet<&'a str>,
}

impl<'a> Counts<'a> {
    /// Counts a sensor. Returns the problem, or `None` for a healthy sensor.
    fn add(&mut self, sensor: &Sensor<'a>) -> Option<&'static str> {
        self.read += usize::from(sensor.state != State::NoReading);
        if sensor.entity == POWER_SUPPLY
            && sensor.state != State::NoReading
            && sensor.reading.contains(PRESENT)
        {
            self.present.insert(sensor.instance);
        }
        let is_supply = sensor.entity == POWER_SUPPLY;
        let worst = worst_state(sensor.reading, sensor.entity);
        let (count, trouble) = match (sensor.state, worst) {
            (State::NoReading, _) | (State::Fine, None) => return None,
            (State::Critical, _) => (&mut self.critical, "is beyond its critical threshold"),
            (State::Warning, _) => (&mut self.warning, "is beyond its warning threshold"),
            (State::Fine, Some(Meaning::Power)) if is_supply => (&mut self.failing, "fails"),
            (State::Fine, Some(Meaning::Fault | Meaning::Power)) => {
                (&mut self.critical, "has failed")
            }
            (State::Fine, Some(Meaning::NotRedundant)) => {
                (&mut self.not_redundant, "is not redundant")
            }
            (State::Fine, Some(Meaning::Warning)) => (&mut self.warning, "reports a warning"),
        };
        *count += 1;
        Some(trouble)
    }
}

struct Sensor<'a> {
    name: &'a str,
    /// `03h`, preceded by the controller's address for a sensor of another controller.
    number: &'a str,
    state: State,
    /// Kind of the measured part, and its instance.
    entity: &'a str,
    instance: &'a str,
    reading: &'a str,
}

/// Parses a line. A name may contain bars, and the other columns may not.
fn read(line: &str) -> Option<Sensor<'_>> {
    let mut columns = line.rsplitn(5, '|').map(str::trim);
    let (reading, entity, state) = (columns.next()?, columns.next()?, columns.next()?);
    let (number, name) = (columns.next()?, columns.next()?);
    let (entity, instance) = entity.split_once('.')?;
    let numbered = number
        .strip_suffix('h')
        .is_some_and(|hex| u16::from_str_radix(hex, 16).is_ok());
    let named = (1..=NAME_MAX).contains(&name.len());
    if !numbered || !named || entity.parse::<u8>().is_err() || instance.parse::<u8>().is_err() {
        return None;
    }
    let state = match state {
        "ok" => State::Fine,
        "nc" | "lnc" | "unc" => State::Warning,
        "cr" | "lcr" | "ucr" | "nr" | "lnr" | "unr" => State::Critical,
        "ns" => State::NoReading,
        _ => return None,
    };
    Some(Sensor {
        name,
        number,
        state,
        entity,
        instance,
        reading,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(text: &str) -> Vec<(&'static str, f64)> {
        let answer = Answer {
            exit: 0,
            text,
            messages: "",
            serial: None,
        };
        let reading = parse(&answer).unwrap_or_else(|why| panic!("{text}: {why}"));
        let found = |metric| {
            reading
                .number(metric, "")
                .filter(|count| *count > 0.0)
                .map(|count| (metric, count))
        };
        [
            "bmc.sensors",
            "bmc.warning",
            "bmc.critical",
            "psu.failing",
            "bmc.not_redundant",
        ]
        .into_iter()
        .filter_map(found)
        .collect()
    }

    #[test]
    fn each_trouble_is_counted_as_what_it_is() {
        for (state, metric) in [
            ("lnc", "bmc.warning"),
            ("unc", "bmc.warning"),
            ("ucr", "bmc.critical"),
            ("nr", "bmc.critical"),
        ] {
            let said = format!("Left|Fan | 1fh | {state} | 29.1 | 400 RPM\n");
            assert_eq!(
                told(&said),
                [("bmc.sensors", 1.0), (metric, 1.0)],
                "{state}"
            );
        }
        for (state, metric) in [
            ("Presence detected, Failure detected", "psu.failing"),
            ("Presence detected, Predictive failure", "psu.failing"),
            ("Config Error: Vendor Mismatch", "psu.failing"),
            (
                "Redundancy Degraded from Fully Redundant",
                "bmc.not_redundant",
            ),
            ("Non-Redundant: Insufficient Resources", "bmc.not_redundant"),
        ] {
            let said = format!("PS | 03h | ok  | 10.1 | {state}\n");
            assert_eq!(
                told(&said),
                [("bmc.sensors", 1.0), (metric, 1.0)],
                "{state}"
            );
        }
        for said in [
            "CPU1 Status | 11h | ok  |  3.1 | Presence detected, Thermal Trip",
            "PSU | 12h | ok  | 19.1 | Power Supply AC lost",
        ] {
            assert_eq!(
                told(&format!("{said}\n")),
                [("bmc.sensors", 1.0), ("bmc.critical", 1.0)],
                "{said}"
            );
        }
        // A drive's failure is not a power supply's failure, and an absent power supply has no
        // reading.
        let said = "Drive 0 | 60h | ok  |  4.1 | Drive Present, Predictive Failure\nPS 2 | 61h | ns  | 10.2 | No Reading\n";
        assert_eq!(told(said), [("bmc.sensors", 1.0), ("bmc.critical", 1.0)]);
    }

    #[test]
    fn a_fault_before_a_sensor_that_was_not_asked_is_a_fault() {
        let read = |text: &str| {
            parse(&Answer {
                exit: 1,
                text,
                messages: "Unable to read sensor",
                serial: None,
            })
        };
        let well = "Drive 0 | 60h | ok  |  4.1 | Drive Present\n";
        assert!(read(well).is_err_and(|why| why.contains("Unable to read sensor")));
        let broken = "Drive 4 | 64h | ok  |  4.4 | Drive Present, Drive Fault\nPS 1 | 65h | ok  | 10.1 | Failure detected\nFan | 66h | unc | 29.1 | 90 RPM\nP";
        let reading = read(&format!("{well}{broken}")).expect("a fault");
        let wanted = [
            "Drive 4 has failed: Drive Present, Drive Fault",
            "PS 1 fails: Failure detected",
        ];
        assert_eq!(reading.faults, wanted);
        assert!(reading.samples.is_empty());
    }

    #[test]
    fn a_power_supply_is_there_that_says_so_and_a_silent_bay_is_no_fault() {
        let of = |text: &str| {
            let reading = parse(&Answer {
                exit: 0,
                text,
                messages: "",
                serial: None,
            })
            .unwrap();
            ["psu.present", "psu.failing"].map(|metric| reading.number(metric, ""))
        };
        let first = "PS1 Status | C8h | ok  | 10.1 | Presence detected\nPS1 Input | C7h | ok  | 10.1 | 210 Watts\n";
        assert_eq!(
            of(&format!("{first}PS2 Status | C9h | ok  | 10.2 |\n")),
            [Some(1.0), Some(0.0)]
        );
        assert_eq!(
            of(&format!(
                "{first}PS2 | C9h | ok  | 10.2 | Presence detected, Failure detected\n"
            )),
            [Some(2.0), Some(1.0)]
        );
        // A duplicate, a power supply without a reading, and a part other than a power supply.
        for other in [
            "PS1 State | C9h | ok  | 10.1 | Presence detected",
            "PS2 | C9h | ns  | 10.2 | No Reading",
            "CPU1 Status | C9h | ok  |  3.1 | Presence detected",
        ] {
            assert_eq!(
                of(&format!("{first}{other}\n")),
                [Some(1.0), Some(0.0)],
                "{other}"
            );
        }
    }

    #[test]
    fn sensors_of_several_luns_share_their_numbers() {
        let line = |at: usize| {
            format!(
                "T{at} | {:02X}h | ok  |  7.{} | 24 degrees C\n",
                at % 200,
                at / 200 + 1
            )
        };
        let lines: String = (0..600).map(line).collect();
        assert_eq!(told(&lines), [("bmc.sensors", 600.0)]);
        assert_eq!(
            told("T | 01h | ok  | 7.1 | 24 degrees C\nT | 01h | ok  | 7.2 | 24 degrees C\n"),
            [("bmc.sensors", 2.0)]
        );
        let again = format!("{lines}{}", line(599));
        assert!(
            parse(&Answer {
                exit: 0,
                text: &again,
                messages: "",
                serial: None
            })
            .is_err()
        );
    }

    #[test]
    fn what_is_no_list_of_sensors_is_an_error() {
        let good = "PS | 03h | ok  | 10.1 | Presence detected\n";
        let read = |exit, text: &str| {
            parse(&Answer {
                exit,
                text,
                messages: "Could not open device",
                serial: None,
            })
        };
        assert!(read(0, good).is_ok());
        assert!(read(1, good).is_err_and(|why| why.contains("Could not open device")));
        for (from, to) in [
            ("ok ", "fine"),
            ("03h", "3"),
            ("03h", "xyh"),
            ("10.1", "10"),
            ("10.1", "power.1"),
            ("10.1", "10.first"),
            ("PS ", ""),
            ("PS ", "A name of more than 16 "),
            ("ok ", "ns "),
            ("detected\n", "detected"),
        ] {
            assert!(
                read(0, &good.replace(from, to)).is_err(),
                "{to:?} for {from:?}"
            );
        }
        assert!(read(0, &good.repeat(2)).is_err(), "twice the same");
        assert!(read(0, "").is_err());
    }
}
