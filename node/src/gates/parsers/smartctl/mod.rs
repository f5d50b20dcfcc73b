//! Parser for smartctl 7 with `--json -x` (or `-a`): NVMe, ATA and SCSI, which SAS disks speak.
//! Temperatures are in °C, unlike in nvme-cli. The document of a disk that refused a command is
//! read, because many disks have no log of self-tests. The values of the refused command are
//! missing.

mod ata; // Attributes of an ATA disk
mod nvme; // Health log of an NVMe disk
mod scsi; // Error counters of a SAS disk

use serde::Deserialize;

use super::{Answer, Reading, json, scan};

/// Bits of the exit status (smartctl(8), EXIT STATUS): smartctl did not understand its arguments,
/// or could not open the disk.
const NO_ANSWER: i32 = 0b011;
/// The disk refused a command, or a part of an answer was damaged.
const REFUSED: i32 = 0b100;
/// The disk reports its own failure.
const FAILING: i32 = 0b1000;
const NOTES_MAX: usize = 10;

#[derive(Deserialize)]
struct Report {
    json_format_version: [u32; 2],
    smartctl: Smartctl,
    device: Option<Device>,
    serial_number: Option<String>,
    /// ATA and NVMe.
    firmware_version: Option<String>,
    /// SCSI, smartctl 7.3 and newer.
    scsi_revision: Option<String>,
    /// SCSI, smartctl 7.0 to 7.2.
    revision: Option<String>,
    smart_status: Option<Status>,
    temperature: Option<scsi::Temperature>,
    nvme_smart_health_information_log: Option<nvme::Log>,
    ata_smart_attributes: Option<ata::Attributes>,
    scsi_error_counter_log: Option<scsi::Counters>,
    scsi_percentage_used_endurance_indicator: Option<u32>,
}

#[derive(Deserialize)]
struct Smartctl {
    version: Vec<u32>,
    exit_status: i32,
    #[serde(default)]
    messages: Vec<Message>,
}

#[derive(Deserialize)]
struct Message {
    string: String,
}

#[derive(Deserialize)]
struct Device {
    protocol: String,
}

#[derive(Deserialize)]
struct Status {
    passed: bool,
    scsi: Option<scsi::Exception>,
}

pub(super) fn parse(answer: &Answer<'_>) -> Result<Reading, String> {
    let report: Report = json(answer.text)?;
    let serial = check_report(&report, answer)?;
    let exit = report.smartctl.exit_status;
    let refused = (exit & REFUSED != 0).then(|| list_messages(&report.smartctl));
    let device = report.device.as_ref().ok_or("it names no device")?;
    let status = report.smart_status.as_ref();
    let failing = match status {
        _ if exit & FAILING != 0 => true,
        Some(status) => !status.passed,
        None => return Err(unhealthy(refused)),
    };
    let mut reading = Reading::default();
    let version: Vec<String> = report.smartctl.version.iter().map(u32::to_string).collect();
    reading.version("smartctl", &version.join("."));
    let firmware = [
        &report.firmware_version,
        &report.scsi_revision,
        &report.revision,
    ];
    let firmware = firmware.into_iter().flatten().next();
    reading.version("firmware", firmware.map_or("", String::as_str));
    reading.count("smart.failing", usize::from(failing));
    match device.protocol.as_str() {
        "NVMe" => {
            let log = report.nvme_smart_health_information_log.as_ref();
            nvme::add_log(&mut reading, serial, log);
        }
        // Some disks have no attributes. A refused command may have been the one for them.
        "ATA" => match &report.ata_smart_attributes {
            Some(attributes) => ata::add_attributes(&mut reading, serial, attributes),
            None if refused.is_some() => {
                reading.leave("smart.prefail", "the attributes are missing".to_owned());
            }
            None => {}
        },
        "SCSI" => {
            let values = scsi::Values {
                exception: status.and_then(|status| status.scsi.as_ref()),
                failing,
                counters: report.scsi_error_counter_log.as_ref(),
                endurance: report.scsi_percentage_used_endurance_indicator,
                temperature: report.temperature.as_ref(),
            };
            scsi::add_values(&mut reading, serial, &values);
        }
        _ => {}
    }
    reading.notes.extend(refused.into_iter().flatten());
    Ok(reading)
}

/// Checks the version, the exit status and the disk of a report, and returns the serial.
fn check_report<'r>(report: &'r Report, answer: &Answer<'_>) -> Result<&'r str, String> {
    let smartctl = &report.smartctl;
    let [major, _] = report.json_format_version;
    if major != 1 || smartctl.version.first() != Some(&7) {
        return Err(format!(
            "version {:?}, format {major} is not known",
            smartctl.version
        ));
    }
    let exit = smartctl.exit_status;
    if exit != answer.exit || exit & NO_ANSWER != 0 {
        let messages = list_messages(smartctl).join("; ");
        return Err(format!("the disk was not read (status {exit}): {messages}"));
    }
    let serial = report
        .serial_number
        .as_deref()
        .map(str::trim)
        .ok_or("it names no serial")?;
    match answer.serial {
        Some(expected) if expected != serial => {
            Err(format!("asked for disk {expected}, it told of {serial}"))
        }
        _ => Ok(serial),
    }
}

/// The messages of smartctl, such as the reason of a refused command.
fn list_messages(smartctl: &Smartctl) -> Vec<String> {
    let messages = smartctl.messages.iter().take(NOTES_MAX);
    messages
        .map(|message| scan::word(&message.string))
        .collect()
}

/// The reason of a report without the disk's own judgement.
fn unhealthy(refused: Option<Vec<String>>) -> String {
    let reason = "the disk says nothing about its health";
    match refused {
        Some(messages) => format!("{reason} (status 4): {}", messages.join("; ")),
        None => reason.to_owned(),
    }
}
