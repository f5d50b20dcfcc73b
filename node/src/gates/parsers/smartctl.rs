//! Parser for smartctl 7 with `--json -x` (or `-a`), NVMe and ATA. Temperatures are in °C, unlike
//! in nvme-cli.

use serde::Deserialize;

use super::{Answer, Reading, json};

/// Bits of the exit status (smartctl(8), EXIT STATUS): smartctl could not query the disk, or the
/// disk could not answer.
const NO_ANSWER: i32 = 0b111;
/// The disk reports its own failure.
const FAILING: i32 = 0b1000;

#[derive(Deserialize)]
struct Report {
    json_format_version: [u32; 2],
    smartctl: Smartctl,
    device: Option<Device>,
    serial_number: Option<String>,
    firmware_version: Option<String>,
    smart_status: Option<Status>,
    nvme_smart_health_information_log: Option<Log>,
    ata_smart_attributes: Option<Attributes>,
}

#[derive(Deserialize)]
struct Attributes {
    table: Vec<Attribute>,
}

/// An attribute of an ATA disk. `when_failed` is `now` while the value is at its threshold, `past`
/// after an earlier time at the threshold, and otherwise empty (smartctl(8), `-A`).
#[derive(Deserialize)]
struct Attribute {
    id: u8,
    name: String,
    when_failed: String,
    flags: Flags,
}

#[derive(Deserialize)]
struct Flags {
    prefailure: bool,
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
}

#[derive(Deserialize)]
struct Log {
    critical_warning: u8,
    media_errors: u64,
    percentage_used: u8,
    available_spare: u8,
    available_spare_threshold: u8,
    temperature: f64,
}

pub(super) fn parse(answer: &Answer<'_>) -> Result<Reading, String> {
    let report: Report = json(answer.text)?;
    let serial = check_report(&report, answer)?.to_owned();
    let device = report.device.ok_or("it names no device")?;
    let status = report
        .smart_status
        .ok_or("the disk says nothing about its health")?;
    let mut reading = Reading::default();
    let version: Vec<String> = report.smartctl.version.iter().map(u32::to_string).collect();
    reading.version("smartctl", &version.join("."));
    reading.version("firmware", &report.firmware_version.unwrap_or_default());
    let failing = !status.passed || report.smartctl.exit_status & FAILING != 0;
    reading.count("smart.failing", usize::from(failing));
    match (
        device.protocol.as_str(),
        report.nvme_smart_health_information_log,
        report.ata_smart_attributes,
    ) {
        ("NVMe", Some(log), _) => read_log(&mut reading, &serial, &log),
        ("NVMe", None, _) => return Err("an NVMe disk without its health log".into()),
        // Raw counts of an attribute differ by maker, and only the maker's threshold is comparable.
        // Some disks have no attributes.
        ("ATA", _, Some(attributes)) => read_attributes(&mut reading, &serial, &attributes.table)?,
        _ => {}
    }
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
        let messages: Vec<&str> = smartctl
            .messages
            .iter()
            .map(|message| message.string.as_str())
            .collect();
        return Err(format!(
            "the disk was not read (status {exit}): {}",
            messages.join("; ")
        ));
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

/// Reads the health log of an NVMe disk.
fn read_log(reading: &mut Reading, serial: &str, log: &Log) {
    reading.add("smart.critical_warning", log.critical_warning);
    reading.add("smart.media_errors", log.media_errors as f64);
    reading.add("smart.percentage_used", log.percentage_used);
    let missing = log
        .available_spare_threshold
        .saturating_sub(log.available_spare);
    reading.add("smart.spare_missing", missing);
    reading.add("smart.temperature", log.temperature);
    if log.critical_warning != 0 {
        reading.notes.push(format!(
            "{serial} raises {}",
            super::nvme::warnings(log.critical_warning)
        ));
    }
}

/// Counts the attributes of an ATA disk at their threshold.
fn read_attributes(
    reading: &mut Reading,
    serial: &str,
    attributes: &[Attribute],
) -> Result<(), String> {
    let mut failing = 0;
    for Attribute {
        id,
        name,
        when_failed,
        flags,
    } in attributes
    {
        match when_failed.as_str() {
            "" | "past" => {}
            "now" => {
                failing += usize::from(flags.prefailure);
                reading.notes.push(format!(
                    "{serial}: attribute {id} {name} is at its threshold"
                ));
            }
            other => return Err(format!("attribute {id} failed {other:?}")),
        }
    }
    reading.count("smart.prefail", failing);
    Ok(())
}
