//! IPMI 2.0 over LAN, by `ipmitool`, for BMCs that speak nothing better. What is not verified by it: that the BMC is the one we mean; it has no
//! certificate, and what it gives for a GUID is in no agreed order of bytes.

mod accounts; // The password that it logs in with
mod log; // The system event log
mod said; // What ipmitool's words mean
mod sensors; // What its sensors read
mod tool; // Runs ipmitool

use std::sync::Arc;

use muster_core::facts::Firmware;
use muster_core::ids::JobId;
use muster_core::values::Digest;
use muster_core::wire::bmc::IpmiTarget;

use self::tool::{Tool, Words};
use super::error::{BmcError, shortened};
use super::evidence::{EventEntry, Sensor};
use super::pace::{Limits, Slot};
use super::view::{BmcView, BootOnce, BootOverride, OverrideEnabled, PowerState, Reset};

/// One BMC.
#[derive(Clone, Debug)]
pub(super) struct Ipmi {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    tool: Tool,
    firmware: Firmware,
    slot: Arc<Slot>,
}

/// How to set where the next boot goes, best first. Some take `none` and do nothing.
pub(super) fn boot_ways(boot: BootOnce) -> &'static [&'static str] {
    match boot {
        BootOnce::Pxe => &["pxe"],
        BootOnce::None => &["none", "disk"],
    }
}

impl Ipmi {
    pub(super) fn new(target: &IpmiTarget, job: JobId, slot: Arc<Slot>, limits: Limits) -> Self {
        let credentials =
            Digest::of(format!("{}\0{}", target.user, target.password.reveal()).as_bytes());
        let tool = Tool {
            target: target.clone(),
            credentials,
            job,
            slot: Arc::clone(&slot),
            limits,
        };
        Self {
            inner: Arc::new(Inner {
                tool,
                firmware: target.firmware,
                slot,
            }),
        }
    }

    /// Held through one change, so that nobody else changes the same BMC in between.
    pub(super) async fn writer(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.inner.slot.writer.lock().await
    }

    /// Power alone: each question is a session of its own, and BMCs bear few.
    pub(super) async fn observe(&self) -> Result<BmcView, BmcError> {
        let said = self.run(&["chassis", "power", "status"]).await?;
        let power = match said.trim() {
            "Chassis Power is on" => PowerState::On,
            "Chassis Power is off" => PowerState::Off,
            other => {
                return Err(BmcError::Garbage {
                    what: format!("its chassis power status is {:?}", shortened(other)),
                });
            }
        };
        Ok(BmcView {
            power,
            ..BmcView::default()
        })
    }

    /// Sets one of [`boot_ways`], for the next boot alone.
    pub(super) async fn set_boot(&self, boot: BootOnce, way: usize) -> Result<(), BmcError> {
        let mut arguments = vec!["chassis", "bootdev", boot_ways(boot)[way]];
        if self.inner.firmware == Firmware::Uefi {
            arguments.push("options=efiboot");
        }
        self.run(&arguments).await.map(drop)
    }

    pub(super) async fn boot_override(&self) -> Result<BootOverride, BmcError> {
        let said = self.run(&["chassis", "bootparam", "get", "5"]).await?;
        boot_flags(&said).ok_or_else(|| BmcError::Garbage {
            what: format!("its boot flags are {:?}", shortened(&said)),
        })
    }

    pub(super) async fn reset(&self, act: Reset) -> Result<(), BmcError> {
        let _alone = self.writer().await;
        let word = match act {
            Reset::On => "on",
            Reset::ForceOff => "off",
            Reset::ForceRestart => "cycle",
            Reset::GracefulShutdown => "soft",
        };
        self.run(&["chassis", "power", word]).await.map(drop)
    }

    /// Asked first whether there is a log: its lines come whole only from an ipmitool that says little when a login is refused.
    pub(super) async fn event_log(&self, max: usize) -> Result<Vec<EventEntry>, BmcError> {
        self.run(&["sel", "info"]).await?;
        let listed = self
            .inner
            .tool
            .run(&["sel", "list", "last", &max.to_string()], Words::Few)
            .await?;
        Ok(log::entries(&listed, max))
    }

    /// Asked first whether there are any: before it reads a sensor, ipmitool erases and rebuilds a repository that has no record.
    pub(super) async fn sensors(&self) -> Result<Vec<Sensor>, BmcError> {
        let info = self.run(&["sdr", "info"]).await?;
        if sensors::records(&info).is_none_or(|records| records == 0) {
            return Err(BmcError::Unsupported {
                what: "it lists no sensors".into(),
            });
        }
        Ok(sensors::readings(
            &self
                .inner
                .tool
                .run(&["-c", "sdr", "list", "full"], Words::Few)
                .await?,
        ))
    }

    /// By DCMI 1.5, section 6.6.1.
    pub(super) async fn power_watts(&self) -> Result<f64, BmcError> {
        let said = self.run(&["dcmi", "power", "reading"]).await?;
        watts(&said).ok_or_else(|| BmcError::Unsupported {
            what: "it shows no power reading".into(),
        })
    }

    async fn run(&self, arguments: &[&str]) -> Result<String, BmcError> {
        self.inner.tool.run(arguments, Words::Many).await
    }
}

/// Parameter 5 of the boot options (IPMI 2.0, table 28-14), from the bytes: the sentences beside them changed between versions.
fn boot_flags(said: &str) -> Option<BootOverride> {
    let data = said
        .lines()
        .find_map(|line| line.trim().strip_prefix("Boot parameter data:"))?
        .trim();
    let (first, second) = (
        u8::from_str_radix(data.get(0..2)?, 16).ok()?,
        u8::from_str_radix(data.get(2..4)?, 16).ok()?,
    );
    let (valid, persistent, efi) = (first & 0x80 != 0, first & 0x40 != 0, first & 0x20 != 0);
    let target = match second >> 2 & 0xf {
        0 => "None".to_owned(),
        1 => "Pxe".to_owned(),
        2 | 3 => "Hdd".to_owned(),
        4 => "Diags".to_owned(),
        5 => "Cd".to_owned(),
        6 => "BiosSetup".to_owned(),
        15 => "Floppy".to_owned(),
        other => format!("device {other}"),
    };
    let enabled = match (valid, persistent) {
        // It shows a device and says that the flags are not valid: simulators drop the bit, firmware clears it when it has used them.
        (false, _) if target != "None" => OverrideEnabled::Unknown,
        (false, _) => OverrideEnabled::Disabled,
        (true, false) => OverrideEnabled::Once,
        (true, true) => OverrideEnabled::Continuous,
    };
    Some(BootOverride {
        enabled,
        target,
        mode: Some(if efi { Firmware::Uefi } else { Firmware::Bios }),
    })
}

fn watts(said: &str) -> Option<f64> {
    let reading = said
        .lines()
        .find_map(|line| line.trim().strip_prefix("Instantaneous power reading:"))?;
    reading
        .split_whitespace()
        .next()?
        .parse()
        .ok()
        .filter(|watts: &f64| watts.is_finite())
}
