//! Reads event log, sensors and power drawn from the resources of Redfish.

use serde_json::Value;

use super::client::Redfish;
use super::links::{bare, link, next_page};
use crate::bmc::error::{BmcError, shortened};
use crate::bmc::evidence::{EventEntry, Sensor};

/// Names of the hardware event log used by vendors, best first.
const LOGS: [&str; 6] = ["SEL", "Sel", "EventLog", "Log1", "IML", "Event"];
/// Maximum number of pages of a log. Each page is limited to the size of a body.
const PAGES: usize = 20;
/// Maximum number of sensors of a chassis.
const SENSORS: usize = 500;

impl Redfish {
    pub(in crate::bmc) async fn event_log(&self, max: usize) -> Result<Vec<EventEntry>, BmcError> {
        let mut next = Some(self.log_entries_path().await?);
        let mut entries = Vec::new();
        for _ in 0..PAGES {
            let Some(path) = next else { break };
            let page = self.get(&path).await?;
            let members = page["Members"].as_array().map_or(&[][..], Vec::as_slice);
            entries.extend(members.iter().map(entry));
            next = next_page(&page)?;
        }
        // Vendors sort in either direction. Entries without a time keep their position.
        if entries
            .first()
            .zip(entries.last())
            .is_some_and(|(first, last)| first.at > last.at)
        {
            entries.reverse();
        }
        Ok(entries.split_off(entries.len().saturating_sub(max)))
    }

    async fn log_entries_path(&self) -> Result<String, BmcError> {
        let system = self.get(self.system_path().await?).await?;
        let mut places = vec![system["LogServices"].clone()];
        if let Some(manager) = system["Links"]["ManagedBy"].get(0) {
            places.push(self.get(&link(manager)?).await?["LogServices"].clone());
        }
        let mut forbidden = None;
        for place in places.iter().filter(|place| place.is_object()) {
            let services = match self.get(&link(place)?).await {
                Ok(services) => services,
                Err(BmcError::Unsupported { .. }) => continue,
                Err(error @ BmcError::Forbidden { .. }) => {
                    forbidden = Some(error);
                    continue;
                }
                Err(error) => return Err(error),
            };
            let members = services["Members"]
                .as_array()
                .map_or(&[][..], Vec::as_slice);
            let mut paths: Vec<String> = members
                .iter()
                .filter_map(|member| link(member).ok())
                .collect();
            paths.sort_by_key(|path| {
                LOGS.iter()
                    .position(|name| bare(path).ends_with(&format!("/{name}")))
                    .unwrap_or(LOGS.len())
            });
            if let Some(path) = paths.first() {
                return link(&self.get(path).await?["Entries"]);
            }
        }
        Err(forbidden.unwrap_or_else(|| BmcError::Unsupported {
            what: "it keeps no event log".into(),
        }))
    }

    pub(in crate::bmc) async fn sensors(&self) -> Result<Vec<Sensor>, BmcError> {
        let chassis = self.chassis_path().await?;
        match self.get(&format!("{chassis}/Thermal")).await {
            Ok(thermal) => Ok(thermal_sensors(&thermal)),
            Err(BmcError::Unsupported { .. }) => {
                let all = self
                    .get(&format!("{chassis}/Sensors?$expand=.($levels=1)"))
                    .await?;
                let members = all["Members"].as_array().map_or(&[][..], Vec::as_slice);
                Ok(members
                    .iter()
                    .filter_map(|member| sensor(member, "Reading", "ReadingUnits", ""))
                    .take(SENSORS)
                    .collect())
            }
            Err(error) => Err(error),
        }
    }

    pub(in crate::bmc) async fn power_watts(&self) -> Result<f64, BmcError> {
        let chassis = self.chassis_path().await?;
        let old = match self.get(&format!("{chassis}/Power")).await {
            Ok(power) => power["PowerControl"][0]["PowerConsumedWatts"].as_f64(),
            Err(BmcError::Unsupported { .. }) => None,
            Err(error) => return Err(error),
        };
        if let Some(watts) = old {
            return Ok(watts);
        }
        let metrics = self.get(&format!("{chassis}/EnvironmentMetrics")).await?;
        metrics["PowerWatts"]["Reading"]
            .as_f64()
            .ok_or_else(|| BmcError::Unsupported {
                what: "it shows no power reading".into(),
            })
    }

    async fn chassis_path(&self) -> Result<String, BmcError> {
        let system = self.get(self.system_path().await?).await?;
        match system["Links"]["Chassis"].get(0) {
            Some(chassis) => link(chassis).map(|path| bare(&path).to_owned()),
            None => Err(BmcError::Unsupported {
                what: "its system names no chassis".into(),
            }),
        }
    }
}

fn entry(member: &Value) -> EventEntry {
    let text = |name: &str| member[name].as_str().map(shortened);
    EventEntry {
        id: text("Id").unwrap_or_default(),
        at: member["Created"].as_str().and_then(|at| at.parse().ok()),
        severity: text("Severity"),
        message: text("Message")
            .or_else(|| text("MessageId"))
            .unwrap_or_default(),
    }
}

fn thermal_sensors(thermal: &Value) -> Vec<Sensor> {
    let list = |name: &str| thermal[name].as_array().cloned().unwrap_or_default();
    let temperatures = list("Temperatures");
    let fans = list("Fans");
    let temperatures = temperatures
        .iter()
        .filter_map(|value| sensor(value, "ReadingCelsius", "", "Cel"));
    temperatures
        .chain(
            fans.iter()
                .filter_map(|value| sensor(value, "Reading", "ReadingUnits", "RPM")),
        )
        .take(SENSORS)
        .collect()
}

/// Returns the reading of a sensor. Absent and disabled sensors report null and are skipped.
fn sensor(value: &Value, reading: &str, unit: &str, default_unit: &str) -> Option<Sensor> {
    Some(Sensor {
        name: shortened(value["Name"].as_str().or(value["MemberId"].as_str())?),
        reading: value[reading].as_f64()?,
        unit: shortened(value[unit].as_str().unwrap_or(default_unit)),
        health: value["Status"]["Health"].as_str().map(shortened),
    })
}
