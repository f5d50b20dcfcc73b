//! The computer system: identity, power, boot override, and the parts visible to the BMC.

use serde_json::{Value, json};

use super::interface::boot_mode;
use super::reply::collection;
use super::{Service, enclosure, update};
use crate::machine::PowerState;
use crate::plan::DiskKind;

const SYSTEM: &str = "/redfish/v1/Systems/1";
/// Values accepted by the reset action.
pub(crate) const RESET_TYPES: [&str; 7] = [
    "On",
    "ForceOff",
    "GracefulShutdown",
    "GracefulRestart",
    "ForceRestart",
    "PowerCycle",
    "PushPowerButton",
];
/// Values accepted as boot override target.
pub(crate) const BOOT_TARGETS: [&str; 3] = ["None", "Pxe", "Hdd"];

/// The resource at a path below `/redfish/v1/Systems`.
pub(crate) fn resource(service: &Service, segments: &[&str], query: &str) -> Option<Value> {
    match segments {
        [] => Some(collection(
            "/redfish/v1/Systems",
            "ComputerSystem",
            &["1".to_owned()],
        )),
        ["1"] => Some(system(service)),
        ["1", "Bios", rest @ ..] => update::bios(service, rest),
        ["1", "EthernetInterfaces"] => Some(part_collection(
            "EthernetInterfaces",
            "EthernetInterface",
            "NIC1",
        )),
        ["1", "EthernetInterfaces", "NIC1"] => Some(network_card(service)),
        ["1", "Memory"] => Some(part_collection("Memory", "Memory", "DIMM1")),
        ["1", "Memory", "DIMM1"] => Some(memory(service)),
        ["1", "Processors"] => Some(part_collection("Processors", "Processor", "CPU1")),
        ["1", "Processors", "CPU1"] => Some(processor(service)),
        ["1", "Storage"] => Some(part_collection("Storage", "Storage", "1")),
        ["1", "Storage", "1"] => Some(storage(service)),
        ["1", "Storage", "1", "Drives", id] => drive(service, id),
        ["1", "LogServices", rest @ ..] => {
            enclosure::logs(service, &format!("{SYSTEM}/LogServices"), rest, query)
        }
        _ => None,
    }
}

fn part_collection(name: &str, kind: &str, member: &str) -> Value {
    collection(&format!("{SYSTEM}/{name}"), kind, &[member.to_owned()])
}

fn system(service: &Service) -> Value {
    let machine = &service.machine;
    let plan = &machine.plan;
    let boot = machine.boot_override();
    let power = machine.power();
    let link = |name: &str| json!({"@odata.id": format!("{SYSTEM}/{name}")});
    json!({
        "@odata.id": SYSTEM,
        "@odata.type": "#ComputerSystem.v1_16_0.ComputerSystem",
        "Id": "1",
        "Name": "System",
        "SystemType": "Physical",
        "Manufacturer": plan.manufacturer,
        "Model": plan.product,
        "SKU": format!("{}-SKU", plan.serial),
        "SerialNumber": plan.serial,
        "UUID": plan.uuid,
        "PowerState": power,
        "Status": {"State": if power == PowerState::On { "Enabled" } else { "Disabled" }, "Health": "OK", "HealthRollup": "OK"},
        "Boot": {
            "BootSourceOverrideEnabled": boot.enabled,
            "BootSourceOverrideEnabled@Redfish.AllowableValues": ["Disabled", "Once", "Continuous"],
            "BootSourceOverrideTarget": boot.target,
            "BootSourceOverrideTarget@Redfish.AllowableValues": BOOT_TARGETS,
            "BootSourceOverrideMode": boot_mode(service),
            "BootSourceOverrideMode@Redfish.AllowableValues": [boot_mode(service)],
        },
        "MemorySummary": {"TotalSystemMemoryGiB": f64::from(plan.memory_mib) / 1024.0, "Status": {"Health": "OK"}},
        "ProcessorSummary": {"Count": 1, "CoreCount": plan.vcpus, "LogicalProcessorCount": plan.vcpus, "Status": {"Health": "OK"}},
        "BiosVersion": update::version(service, "BIOS"),
        "Bios": link("Bios"),
        "EthernetInterfaces": link("EthernetInterfaces"),
        "Memory": link("Memory"),
        "Processors": link("Processors"),
        "Storage": link("Storage"),
        "LogServices": link("LogServices"),
        "Links": {
            "Chassis": [{"@odata.id": "/redfish/v1/Chassis/1"}],
            "ManagedBy": [{"@odata.id": "/redfish/v1/Managers/1"}],
        },
        "Actions": {"#ComputerSystem.Reset": {
            "target": format!("{SYSTEM}/Actions/ComputerSystem.Reset"),
            "ResetType@Redfish.AllowableValues": RESET_TYPES,
        }},
    })
}

fn network_card(service: &Service) -> Value {
    json!({
        "@odata.id": format!("{SYSTEM}/EthernetInterfaces/NIC1"),
        "@odata.type": "#EthernetInterface.v1_8_0.EthernetInterface",
        "Id": "NIC1",
        "Name": "Network card 1",
        "MACAddress": service.machine.plan.mac,
        "PermanentMACAddress": service.machine.plan.mac,
        "Status": {"State": "Enabled", "Health": "OK"},
    })
}

fn memory(service: &Service) -> Value {
    json!({
        "@odata.id": format!("{SYSTEM}/Memory/DIMM1"),
        "@odata.type": "#Memory.v1_15_0.Memory",
        "Id": "DIMM1",
        "Name": "DIMM 1",
        "CapacityMiB": service.machine.plan.memory_mib,
        "Status": {"State": "Enabled", "Health": "OK"},
    })
}

fn processor(service: &Service) -> Value {
    json!({
        "@odata.id": format!("{SYSTEM}/Processors/CPU1"),
        "@odata.type": "#Processor.v1_14_0.Processor",
        "Id": "CPU1",
        "Name": "Processor 1",
        "ProcessorType": "CPU",
        "TotalCores": service.machine.plan.vcpus,
        "TotalThreads": service.machine.plan.vcpus,
        "Status": {"State": "Enabled", "Health": "OK"},
    })
}

fn storage(service: &Service) -> Value {
    let drives = service.machine.plan.disks.iter();
    let drives: Vec<Value> = drives
        .map(|disk| json!({"@odata.id": format!("{SYSTEM}/Storage/1/Drives/{}", disk.serial)}))
        .collect();
    json!({
        "@odata.id": format!("{SYSTEM}/Storage/1"),
        "@odata.type": "#Storage.v1_12_0.Storage",
        "Id": "1",
        "Name": "Storage",
        "Drives@odata.count": drives.len(),
        "Drives": drives,
    })
}

fn drive(service: &Service, id: &str) -> Option<Value> {
    let disk = service
        .machine
        .plan
        .disks
        .iter()
        .find(|disk| disk.serial == id)?;
    let protocol = match disk.kind {
        DiskKind::Nvme => json!("NVMe"),
        DiskKind::Virtio => Value::Null,
    };
    Some(json!({
        "@odata.id": format!("{SYSTEM}/Storage/1/Drives/{id}"),
        "@odata.type": "#Drive.v1_15_0.Drive",
        "Id": id,
        "Name": format!("Drive {id}"),
        "SerialNumber": id,
        "CapacityBytes": u64::from(disk.size_gib) << 30,
        "MediaType": "SSD",
        "Protocol": protocol,
        "Status": {"State": "Enabled", "Health": "OK"},
    }))
}
