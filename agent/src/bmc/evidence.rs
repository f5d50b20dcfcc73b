//! Evidence read from a BMC: event log, sensors and power drawn. The evidence is for operators, and
//! no decision uses the evidence alone.

use jiff::Timestamp;

/// An entry of the event log of the BMC.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventEntry {
    /// Entry id, assigned by the BMC.
    pub id: String,
    /// Time by the clock of the BMC, which is often wrong. `None` when the entry has no time.
    pub at: Option<Timestamp>,
    /// `OK`, `Warning` or `Critical`, as reported by the BMC.
    pub severity: Option<String>,
    /// Message text, shortened to 300 characters.
    pub message: String,
}

/// A reading of a sensor.
#[derive(Clone, Debug, PartialEq)]
pub struct Sensor {
    /// Sensor name, assigned by the vendor.
    pub name: String,
    /// Reading in the given unit.
    pub reading: f64,
    /// Unit as reported by the BMC: `Cel`, `RPM`, `%`, `V`, `W`.
    pub unit: String,
    /// `OK`, `Warning` or `Critical`, if reported.
    pub health: Option<String>,
}
