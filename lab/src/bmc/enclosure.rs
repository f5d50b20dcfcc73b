//! The chassis with its sensors, and the manager (the BMC itself) with its event log.

use serde_json::{Value, json};
use uuid::Uuid;

use super::reply::collection;
use super::{Event, Service, update};
use crate::machine::PowerState;

const CHASSIS: &str = "/redfish/v1/Chassis/1";
const MANAGER: &str = "/redfish/v1/Managers/1";
/// Maximum number of events on a page of the log.
const PAGE: usize = 100;

/// Returns the sensor readings now: power in watts, and inlet temperature in degrees Celsius.
fn readings(service: &Service) -> (u32, u32) {
    match service.machine.power() {
        PowerState::Off => (9, 21),
        // More power than idle; the value changes every second, as on a real sensor.
        PowerState::On => (
            180 + u32::try_from(service.started.elapsed().as_secs() % 40).unwrap_or(0),
            27,
        ),
    }
}

/// The resource at a path below `/redfish/v1/Chassis`.
pub(crate) fn chassis(service: &Service, segments: &[&str]) -> Option<Value> {
    let (watts, celsius) = readings(service);
    match segments {
        [] => Some(collection(
            "/redfish/v1/Chassis",
            "Chassis",
            &["1".to_owned()],
        )),
        ["1"] => Some(json!({
            "@odata.id": CHASSIS,
            "@odata.type": "#Chassis.v1_19_0.Chassis",
            "Id": "1",
            "Name": "Chassis",
            "ChassisType": "RackMount",
            "HeightMm": 44.45,
            "Manufacturer": service.machine.plan.manufacturer,
            "Model": service.machine.plan.product,
            "SerialNumber": format!("{}-C", service.machine.plan.serial),
            "PowerState": service.machine.power(),
            "Status": {"State": "Enabled", "Health": "OK"},
            "Power": {"@odata.id": format!("{CHASSIS}/Power")},
            "Thermal": {"@odata.id": format!("{CHASSIS}/Thermal")},
            "Sensors": {"@odata.id": format!("{CHASSIS}/Sensors")},
            "Links": {
                "ComputerSystems": [{"@odata.id": "/redfish/v1/Systems/1"}],
                "ManagedBy": [{"@odata.id": MANAGER}],
            },
        })),
        ["1", "Power"] => Some(json!({
            "@odata.id": format!("{CHASSIS}/Power"),
            "@odata.type": "#Power.v1_7_1.Power",
            "Id": "Power",
            "Name": "Power",
            "PowerControl": [{
                "@odata.id": format!("{CHASSIS}/Power#/PowerControl/0"),
                "MemberId": "0",
                "Name": "System power",
                "PowerConsumedWatts": watts,
                "PowerCapacityWatts": 800,
                "Status": {"State": "Enabled", "Health": "OK"},
            }],
        })),
        ["1", "Thermal"] => Some(json!({
            "@odata.id": format!("{CHASSIS}/Thermal"),
            "@odata.type": "#Thermal.v1_7_1.Thermal",
            "Id": "Thermal",
            "Name": "Thermal",
            "Temperatures": [{"MemberId": "0", "Name": "Inlet", "ReadingCelsius": celsius, "Status": {"State": "Enabled", "Health": "OK"}}],
            "Fans": [],
        })),
        ["1", "Sensors"] => {
            let members = ["TotalPower".to_owned(), "InletTemp".to_owned()];
            Some(collection(
                &format!("{CHASSIS}/Sensors"),
                "Sensor",
                &members,
            ))
        }
        ["1", "Sensors", "TotalPower"] => Some(sensor("TotalPower", "Power", watts, "W")),
        ["1", "Sensors", "InletTemp"] => Some(sensor("InletTemp", "Temperature", celsius, "Cel")),
        _ => None,
    }
}

fn sensor(id: &str, kind: &str, reading: u32, units: &str) -> Value {
    json!({
        "@odata.id": format!("{CHASSIS}/Sensors/{id}"),
        "@odata.type": "#Sensor.v1_5_0.Sensor",
        "Id": id,
        "Name": id,
        "ReadingType": kind,
        "Reading": reading,
        "ReadingUnits": units,
        "Status": {"State": "Enabled", "Health": "OK"},
    })
}

/// The resource at a path below `/redfish/v1/Managers`.
pub(crate) fn managers(service: &Service, segments: &[&str], query: &str) -> Option<Value> {
    match segments {
        [] => Some(collection(
            "/redfish/v1/Managers",
            "Manager",
            &["1".to_owned()],
        )),
        ["1"] => Some(manager(service)),
        ["1", "LogServices", rest @ ..] => {
            logs(service, &format!("{MANAGER}/LogServices"), rest, query)
        }
        _ => None,
    }
}

fn manager(service: &Service) -> Value {
    json!({
        "@odata.id": MANAGER,
        "@odata.type": "#Manager.v1_14_0.Manager",
        "Id": "1",
        "Name": "Manager",
        "ManagerType": "BMC",
        "Manufacturer": service.machine.plan.manufacturer,
        "Model": "Muster Lab BMC",
        "FirmwareVersion": update::version(service, "BMC"),
        "UUID": uuid(service),
        "ServiceEntryPointUUID": uuid(service),
        "Status": {"State": "Enabled", "Health": "OK"},
        "LogServices": {"@odata.id": format!("{MANAGER}/LogServices")},
        "Links": {
            "ManagerForServers": [{"@odata.id": "/redfish/v1/Systems/1"}],
            "ManagerForChassis": [{"@odata.id": CHASSIS}],
        },
        "Actions": {"#Manager.Reset": {
            "target": format!("{MANAGER}/Actions/Manager.Reset"),
            "ResetType@Redfish.AllowableValues": ["ForceRestart", "GracefulRestart"],
        }},
    })
}

/// The UUID of the BMC: the UUID of the system with bit 64 flipped.
pub(crate) fn uuid(service: &Service) -> Uuid {
    Uuid::from_u128(service.machine.plan.uuid.as_u128() ^ 1 << 64)
}

/// The event log, listed under the system and under the manager; `base` is the path of the
/// collection.
pub(crate) fn logs(service: &Service, base: &str, segments: &[&str], query: &str) -> Option<Value> {
    let log = format!("{base}/EventLog");
    match segments {
        [] => Some(collection(base, "LogService", &["EventLog".to_owned()])),
        ["EventLog"] => Some(json!({
            "@odata.id": log,
            "@odata.type": "#LogService.v1_3_0.LogService",
            "Id": "EventLog",
            "Name": "Event Log",
            "MaxNumberOfRecords": 500,
            "OverWritePolicy": "WrapsWhenFull",
            "Entries": {"@odata.id": format!("{log}/Entries")},
            "Actions": {"#LogService.ClearLog": {"target": format!("{log}/Actions/LogService.ClearLog")}},
        })),
        ["EventLog", "Entries"] => Some(entries(service.memory().events(), &log, query)),
        ["EventLog", "Entries", id] => {
            let memory = service.memory();
            memory
                .events()
                .iter()
                .find(|event| event.id.to_string() == *id)
                .map(|event| entry(event, &log))
        }
        _ => None,
    }
}

/// A page of events, oldest first; `$skip` and `$top` follow DSP0266 section 7.3.
fn entries(events: &[Event], log: &str, query: &str) -> Value {
    let number = |name: &str| {
        let value = query
            .split('&')
            .find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='));
        value.and_then(|value| value.parse::<usize>().ok())
    };
    let skip = number("$skip").unwrap_or(0);
    let top = number("$top").unwrap_or(PAGE).min(PAGE);
    let members: Vec<Value> = events
        .iter()
        .skip(skip)
        .take(top)
        .map(|event| entry(event, log))
        .collect();
    let after = skip.saturating_add(members.len());
    let mut page = json!({
        "@odata.id": format!("{log}/Entries"),
        "@odata.type": "#LogEntryCollection.LogEntryCollection",
        "Name": "Event Log Entries",
        "Members@odata.count": events.len(),
        "Members": members,
    });
    if after < events.len() && top > 0 {
        page["Members@odata.nextLink"] = json!(format!("{log}/Entries?$skip={after}&$top={top}"));
    }
    page
}

fn entry(event: &Event, log: &str) -> Value {
    json!({
        "@odata.id": format!("{log}/Entries/{}", event.id),
        "@odata.type": "#LogEntry.v1_12_0.LogEntry",
        "Id": event.id.to_string(),
        "Name": "Log Entry",
        "EntryType": "Event",
        "Created": event.created,
        "Severity": event.severity,
        "MessageId": event.message_id,
        "Message": event.message,
    })
}
