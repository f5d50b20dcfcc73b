//! Choice between KVM and emulation. On some hosts `/dev/kvm` exists, but guests run a hundred
//! times slower than under emulation. Therefore a probe guest must prove that KVM works before the
//! lab uses KVM.

use std::process::Stdio;
use std::time::Duration;

use tokio::io::AsyncReadExt as _;
use tokio::process::Command;

use super::ovmf::{UEFI_CODE, UEFI_FACTORY_VARIABLES};
use crate::error::{LabError, io};
use crate::plan::AccelPlan;

/// Time limit of the probe. Both firmwares reach the sign in a few seconds under working KVM, and
/// in about ten under emulation.
const PROBE_LIMIT: Duration = Duration::from_secs(12);
/// Console output of a probe guest when its firmware starts the network boot. By then the guest has
/// used real, protected and long mode, timers and a network card; a half-working KVM exits or hangs
/// before.
const BIOS_SIGN: &[u8] = b"Configuring (net0";
const UEFI_SIGN: &[u8] = b"Start PXE over IPv4";
/// Maximum size of a probe guest's console output, in bytes.
const MAX_SCREEN: usize = 64 << 10;

/// The way in which guests run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accel {
    /// With KVM.
    Kvm,
    /// With emulation by QEMU's TCG.
    Tcg,
}

impl std::fmt::Display for Accel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Kvm => "KVM",
            Self::Tcg => "emulation: minutes instead of seconds for each boot",
        })
    }
}

impl Accel {
    /// The value of QEMU's `-accel` option.
    pub(crate) fn argument(self) -> &'static str {
        match self {
            Self::Kvm => "kvm",
            Self::Tcg => "tcg,thread=multi,tb-size=256",
        }
    }

    /// The value of QEMU's `-cpu` option. Under emulation AVX2 is slow, and so is the isolation of page
    /// tables that Linux uses on Intel's model. A boot of the live image takes 24 s of CPU time with
    /// `max`, 23 s with `Nehalem` (x86-64-v2), and 19 s with `Nehalem` and AMD as the vendor.
    pub(crate) fn cpu(self) -> &'static str {
        match self {
            Self::Kvm => "max",
            Self::Tcg => "Nehalem,vendor=AuthenticAMD",
        }
    }

    /// Follows the plan; runs the probe if the plan says so.
    pub(crate) async fn choose(plan: AccelPlan) -> Result<Self, LabError> {
        match plan {
            AccelPlan::Kvm => Ok(Self::Kvm),
            AccelPlan::Tcg => Ok(Self::Tcg),
            AccelPlan::Probe if !std::path::Path::new("/dev/kvm").exists() => Ok(Self::Tcg),
            AccelPlan::Probe => match tokio::time::timeout(PROBE_LIMIT, firmwares_run()).await {
                Ok(ran) => ran.map(|ran| if ran { Self::Kvm } else { Self::Tcg }),
                Err(_) => Ok(Self::Tcg),
            },
        }
    }
}

/// Starts a guest of each firmware under KVM and waits until both start the network boot. Dropping
/// the future kills the guests.
async fn firmwares_run() -> Result<bool, LabError> {
    let code = format!("if=pflash,unit=0,format=raw,readonly=on,file={UEFI_CODE}");
    let variables =
        format!("if=pflash,unit=1,format=raw,snapshot=on,file={UEFI_FACTORY_VARIABLES}");
    let flash = ["-drive", &code, "-drive", &variables];
    let (bios, uefi) = tokio::try_join!(
        firmware_runs(&[], BIOS_SIGN),
        firmware_runs(&flash, UEFI_SIGN)
    )?;
    Ok(bios && uefi)
}

async fn firmware_runs(firmware: &[&str], sign: &[u8]) -> Result<bool, LabError> {
    let mut guest = Command::new("qemu-system-x86_64")
        .args([
            "-nodefaults",
            "-no-user-config",
            "-display",
            "none",
            "-vga",
            "none",
            "-serial",
            "stdio",
        ])
        .args([
            "-machine",
            "q35,graphics=off",
            "-accel",
            "kvm",
            "-cpu",
            "max",
            "-m",
            "256",
        ])
        // A private network without a route to anywhere.
        .args([
            "-netdev",
            "user,id=net0,restrict=on",
            "-device",
            "virtio-net-pci,netdev=net0,bootindex=1",
        ])
        .args(firmware)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .map_err(io("run qemu-system-x86_64 (package qemu-system-x86)"))?;
    let mut screen = Vec::new();
    let mut chunk = [0; 256];
    if let Some(mut output) = guest.stdout.take() {
        while !screen.windows(sign.len()).any(|window| window == sign) {
            match output.read(&mut chunk).await {
                Ok(read) if read > 0 && screen.len() < MAX_SCREEN => {
                    screen.extend_from_slice(&chunk[..read])
                }
                Ok(_) | Err(_) => return Ok(false),
            }
        }
    }
    guest.kill().await.map_err(io("end the probe guest"))?;
    Ok(true)
}
