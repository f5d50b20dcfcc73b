//! IPMI 2.0 over LAN, by `ipmitool`, for BMCs without Redfish. The identity of the BMC is not
//! verified: IPMI has no certificate, and BMCs disagree on the byte order of the GUID.

mod accounts; // The password of the login account
mod log; // The system event log
mod said; // Meaning of ipmitool's messages
mod sensors; // Sensor readings
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
use super::read_back::read_back;
use super::view::{BmcView, BootOnce, BootOverride, OverrideEnabled, PowerState, Reset};

/// A BMC reached by IPMI.
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

/// Returns the `bootdev` arguments for a boot target, best first. Some BMCs accept `none` and
/// ignore the request.
fn boot_ways(boot: BootOnce) -> &'static [&'static str] {
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

    /// Locks the BMC for a whole change, so that other jobs cannot change the same BMC in between.
    pub(super) async fn writer(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.inner.slot.writer.lock().await
    }

    /// Reads the power state only. Each question opens a session, and BMCs support few sessions.
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

    /// Sets the target of the next boot and reads the override back. Tries each way until the
    /// override reads back as requested.
    pub(super) async fn set_boot_once(&self, boot: BootOnce) -> Result<BootOverride, BmcError> {
        let _alone = self.writer().await;
        let limits = self.inner.tool.limits;
        let mut refusal = None;
        for way in boot_ways(boot) {
            match self.set_boot(way).await {
                Ok(()) => match read_back(limits, boot, || self.boot_override()).await? {
                    Ok(set) => return Ok(set),
                    Err(unchanged) => refusal = Some(unchanged),
                },
                Err(unsupported @ BmcError::Unsupported { .. }) => {
                    refusal = refusal.or(Some(unsupported));
                }
                Err(error) => return Err(error),
            }
        }
        Err(refusal
            .expect("there is at least one way, and every way that did not return left its reason"))
    }

    /// Sets the boot target for the next boot only.
    async fn set_boot(&self, way: &str) -> Result<(), BmcError> {
        let mut arguments = vec!["chassis", "bootdev", way];
        if self.inner.firmware == Firmware::Uefi {
            arguments.push("options=efiboot");
        }
        self.run(&arguments).await.map(drop)
    }

    async fn boot_override(&self) -> Result<BootOverride, BmcError> {
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

    /// Reads the latest `max` log entries. First checks with a verbose `sel info` that the BMC has
    /// a log. The listing itself runs without verbose output, because only then the log lines are
    /// complete, and a quiet run does not explain a refused login.
    pub(super) async fn event_log(&self, max: usize) -> Result<Vec<EventEntry>, BmcError> {
        self.run(&["sel", "info"]).await?;
        let listed = self
            .inner
            .tool
            .run(&["sel", "list", "last", &max.to_string()], Words::Few)
            .await?;
        Ok(log::entries(&listed, max))
    }

    /// Reads all sensors. First checks the record count, because ipmitool erases and rebuilds an
    /// empty sensor repository before reading a sensor.
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

    /// Reads the power drawn in watts by DCMI 1.5, section 6.6.1.
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

/// Parses boot option parameter 5 (IPMI 2.0, table 28-14) from the raw bytes. The text printed
/// beside the bytes changed between versions.
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
        // The BMC reports a device, but marks the flags as invalid. Simulators drop the valid bit,
        // and firmware clears the bit after using the flags.
        (false, _) if target != "None" => OverrideEnabled::Unknown,
        (false, _) => OverrideEnabled::Disabled,
        (true, false) => OverrideEnabled::Once,
        (true, true) => OverrideEnabled::Continuous,
    };
    Some(BootOverride {
        enabled,
        target,
        mode: Some(if efi { Firmware::Uefi } else { Firmware::Bios }),
        refusal: None,
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
