//! What a BMC knows beside power: its event log, sensors, the power drawn. Evidence for people; nothing is decided on it alone.

use jiff::Timestamp;

/// One line of the BMC's event log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventEntry {
    pub id: String,
    /// By the BMC's clock, which is often wrong; `None` where it gives no time.
    pub at: Option<Timestamp>,
    /// `OK`, `Warning`, `Critical`, as it says.
    pub severity: Option<String>,
    pub message: String,
}

/// One reading.
#[derive(Clone, Debug, PartialEq)]
pub struct Sensor {
    pub name: String,
    pub reading: f64,
    /// `Cel`, `RPM`, `%`, `V`, `W`, as the BMC calls it.
    pub unit: String,
    pub health: Option<String>,
}
