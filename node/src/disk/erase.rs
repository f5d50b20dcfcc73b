//! The disk's own erase methods. The disk reports the supported methods; the result of a method is
//! never trusted (see `verify`).

use std::time::Duration;

use muster_core::facts::DiskTransport;
use muster_core::wire::node::{Failure, FailureCode, WipeMethod};
use serde::Deserialize;

use super::find::Target;
use crate::failure::{fatal, retryable};
use crate::job::JobContext;
use crate::paths;
use crate::tool::{self, Call};

/// Longest query. A disk answers a query at once or never.
const ASK_TIMEOUT: Duration = Duration::from_secs(30);
/// Interval between two queries of a running sanitize.
const POLL: Duration = Duration::from_secs(2);
/// Password set only for the time of the erase; the erase removes the password.
const ATA_PASSWORD: &str = "muster";

/// Returns the methods supported by the disk, strongest first; overwriting is always last.
pub fn methods(cx: &JobContext, target: &Target) -> Vec<WipeMethod> {
    let mut methods = match target.transport {
        DiskTransport::Nvme => nvme(cx, target),
        DiskTransport::Sata if ata_can_erase(cx, target) => vec![WipeMethod::AtaSecureErase],
        DiskTransport::Sata
        | DiskTransport::Sas
        | DiskTransport::Virtio
        | DiskTransport::Usb
        | DiskTransport::Other => vec![],
    };
    if discards(target) {
        methods.push(WipeMethod::Discard);
    }
    methods.push(WipeMethod::Overwrite);
    methods
}

/// Runs a method of the disk to its end.
///
/// # Errors
/// The failure of the tool or of the disk.
pub fn run(cx: &JobContext, target: &Target, method: WipeMethod) -> Result<(), Failure> {
    match method {
        WipeMethod::NvmeSanitize => sanitize(cx, target),
        WipeMethod::NvmeFormat => format(cx, target),
        WipeMethod::AtaSecureErase => ata_erase(cx, target),
        WipeMethod::Discard => {
            tool::output(cx, &["blkdiscard", "--force", target.device()]).map(drop)
        }
        WipeMethod::Overwrite => Err(fatal(
            FailureCode::Bug,
            "the disk has no overwrite method of its own",
        )),
    }
}

/// The needed fields of `nvme id-ctrl` (NVMe base specification 2.0, figure 275).
#[derive(Debug, Default, Deserialize)]
struct Controller {
    #[serde(default)]
    oacs: u64,
    #[serde(default)]
    sanicap: u64,
    #[serde(default)]
    fna: u64,
}

const OACS_FORMAT: u64 = 1 << 1;
const SANITIZE_CRYPTO: u64 = 1;
const SANITIZE_BLOCK: u64 = 1 << 1;
const SANITIZE_OVERWRITE: u64 = 1 << 2;
const FNA_CRYPTO: u64 = 1 << 2;

fn nvme(cx: &JobContext, target: &Target) -> Vec<WipeMethod> {
    // Sanitize, and often format, erases all namespaces of a controller. Both are used only when
    // the controller has a single namespace.
    if namespaces(target) != 1 {
        cx.log(&format!(
            "disk {}: the controller has other namespaces; NVMe sanitize and format are skipped, because both may erase these too",
            target.serial
        ));
        return vec![];
    }
    let controller = controller(cx, target).unwrap_or_default();
    let mut methods = Vec::new();
    if controller.sanicap & (SANITIZE_CRYPTO | SANITIZE_BLOCK | SANITIZE_OVERWRITE) != 0 {
        methods.push(WipeMethod::NvmeSanitize);
    }
    if controller.oacs & OACS_FORMAT != 0 {
        methods.push(WipeMethod::NvmeFormat);
    }
    methods
}

fn controller(cx: &JobContext, target: &Target) -> Option<Controller> {
    let argv = ["nvme", "id-ctrl", "--output-format=json", target.device()];
    let asked = tool::run(
        cx,
        &Call {
            argv: &argv,
            timeout: Some(ASK_TIMEOUT),
            ..Call::default()
        },
    )
    .ok()?;
    serde_json::from_slice(&asked.stdout)
        .ok()
        .filter(|_| asked.status.success())
}

/// Returns `nvme0` for `nvme0n1`.
fn controller_name(target: &Target) -> Option<&str> {
    let rest = target.name.strip_prefix("nvme")?;
    let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
    target.name.get(..4 + digits)
}

fn namespaces(target: &Target) -> usize {
    let Some(controller) = controller_name(target) else {
        return 0;
    };
    let prefix = format!("{controller}n");
    let entries = std::fs::read_dir(paths::at("/sys/block"))
        .into_iter()
        .flatten()
        .flatten();
    entries
        .filter(|entry| entry.file_name().to_string_lossy().starts_with(&prefix))
        .count()
}

fn sanitize(cx: &JobContext, target: &Target) -> Result<(), Failure> {
    let device = format!("/dev/{}", controller_name(target).unwrap_or_default());
    let sanicap = controller(cx, target).unwrap_or_default().sanicap;
    // sanact: 2 block erase, 4 crypto erase, 3 overwrite (NVMe base specification 2.0, figure 303).
    let action = match () {
        () if sanicap & SANITIZE_BLOCK != 0 => "--sanact=2",
        () if sanicap & SANITIZE_CRYPTO != 0 => "--sanact=4",
        () => "--sanact=3",
    };
    tool::output(cx, &["nvme", "sanitize", action, &device])?;
    loop {
        std::thread::sleep(POLL.min(cx.remaining()));
        cx.check()?;
        let log = tool::output(
            cx,
            &["nvme", "sanitize-log", "--output-format=json", &device],
        )?;
        match sanitize_state(&log) {
            Some((1 | 4, _)) => return Ok(()),
            Some((2, progress)) => {
                let message = format!("sanitizing disk {}", target.serial);
                cx.progress(&message, Some(progress), Some(65_536), Some("parts"));
            }
            Some((status, _)) => {
                return Err(fatal(
                    FailureCode::SanitizeFailed,
                    format!("the disk reports sanitize status {status}"),
                ));
            }
            None => {
                return Err(retryable(
                    FailureCode::SanitizeFailed,
                    "the disk's sanitize log cannot be read",
                ));
            }
        }
    }
}

/// Returns the status (low three bits of SSTAT) and the progress of the log. Some versions of
/// nvme-cli wrap the JSON in the device's name.
fn sanitize_state(log: &[u8]) -> Option<(u64, u64)> {
    let log: serde_json::Value = serde_json::from_slice(log).ok()?;
    let inner = log
        .as_object()?
        .values()
        .find(|value| value.get("sprog").is_some())
        .unwrap_or(&log);
    let number = |value: &serde_json::Value| {
        value
            .as_u64()
            .or_else(|| value.as_str()?.parse().ok())
            .or_else(|| value.get("status")?.as_u64())
    };
    Some((
        number(inner.get("sstat")?)? & 7,
        number(inner.get("sprog")?)?,
    ))
}

fn format(cx: &JobContext, target: &Target) -> Result<(), Failure> {
    let crypto = controller(cx, target).unwrap_or_default().fna & FNA_CRYPTO != 0;
    let erase =
        |setting: &str| tool::output(cx, &["nvme", "format", setting, "--force", target.device()]);
    // User data erase is tried first, because the result can be read back as zeros. Erasing the key
    // is as strong on disks preferring a cryptographic erase.
    match (erase("--ses=1"), crypto) {
        (Err(_), true) => erase("--ses=2").map(drop),
        (done, _) => done.map(drop),
    }
}

/// Reads the security section of `hdparm -I`.
fn ata_can_erase(cx: &JobContext, target: &Target) -> bool {
    let argv = ["hdparm", "-I", target.device()];
    match tool::run(
        cx,
        &Call {
            argv: &argv,
            timeout: Some(ASK_TIMEOUT),
            ..Call::default()
        },
    ) {
        Ok(asked) if asked.status.success() => {
            ata_erasable(&String::from_utf8_lossy(&asked.stdout))
        }
        Ok(_) | Err(_) => false,
    }
}

/// Whether the erase is supported, and the disk neither frozen by the firmware nor locked by an
/// unknown password.
fn ata_erasable(text: &str) -> bool {
    let Some((_, section)) = text.split_once("\nSecurity:") else {
        return false;
    };
    let lines: Vec<String> = section
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
        .collect();
    let says = |word: &str| lines.iter().any(|line| line == word);
    says("supported") && says("not enabled") && says("not locked") && says("not frozen")
}

fn ata_erase(cx: &JobContext, target: &Target) -> Result<(), Failure> {
    let device = target.device();
    tool::output(
        cx,
        &[
            "hdparm",
            "--user-master",
            "u",
            "--security-set-pass",
            ATA_PASSWORD,
            device,
        ],
    )?;
    let erased = tool::output(
        cx,
        &[
            "hdparm",
            "--user-master",
            "u",
            "--security-erase",
            ATA_PASSWORD,
            device,
        ],
    );
    if erased.is_err() {
        // A disk left with a password is a lost disk.
        let _ = tool::output(
            cx,
            &[
                "hdparm",
                "--user-master",
                "u",
                "--security-disable",
                ATA_PASSWORD,
                device,
            ],
        );
    }
    erased.map(drop)
}

fn discards(target: &Target) -> bool {
    let limit = paths::at(&format!(
        "/sys/block/{}/queue/discard_max_bytes",
        target.name
    ));
    std::fs::read_to_string(limit)
        .is_ok_and(|bytes| bytes.trim().parse::<u64>().is_ok_and(|bytes| bytes > 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frozen_or_locked_disk_is_not_erased_by_ata() {
        let text = "Commands:\n\nSecurity: \n\tMaster password revision code = 65534\n\t\tsupported\n\tnot\tenabled\n\tnot\tlocked\n\tnot\tfrozen\n\tnot\texpired: security count\n";
        assert!(ata_erasable(text));
        assert!(!ata_erasable(&text.replace("not\tfrozen", "\tfrozen")));
        assert!(!ata_erasable(&text.replace("not\tlocked", "\tlocked")));
        assert!(!ata_erasable("Commands:\n"));
    }

    #[test]
    fn the_sanitize_log_is_read_in_its_shapes() {
        for log in [
            r#"{"sprog":655,"sstat":2,"cdw10_info":2}"#,
            r#"{"nvme0":{"sprog":655,"sstat":{"media_verification_canceled":0,"status":2}}}"#,
            r#"{"nvme0":{"sprog":"655","sstat":"258"}}"#,
        ] {
            assert_eq!(sanitize_state(log.as_bytes()), Some((2, 655)), "{log}");
        }
        assert_eq!(sanitize_state(b"[]"), None);
    }
}
