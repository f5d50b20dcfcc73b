//! KVM or emulation. `/dev/kvm` may exist and still run guests a hundred times slower than emulation does, so a guest has to
//! show that it runs before KVM is believed.

use std::process::Stdio;
use std::time::Duration;

use tokio::io::AsyncReadExt as _;
use tokio::process::Command;

use crate::error::{LabError, io};
use crate::plan::AccelPlan;

/// Under working KVM the firmware speaks in well under a second, under emulation in about one.
const PROBE_LIMIT: Duration = Duration::from_secs(3);

/// How guests run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accel {
    /// By KVM.
    Kvm,
    /// By emulation.
    Tcg,
}

impl Accel {
    /// QEMU's argument.
    pub(crate) fn argument(self) -> &'static str {
        match self {
            Self::Kvm => "kvm",
            Self::Tcg => "tcg,thread=multi,tb-size=256",
        }
    }

    /// Follows the plan, probing where it says so.
    pub(crate) async fn choose(plan: AccelPlan) -> Result<Self, LabError> {
        match plan {
            AccelPlan::Kvm => Ok(Self::Kvm),
            AccelPlan::Tcg => Ok(Self::Tcg),
            AccelPlan::Probe if !std::path::Path::new("/dev/kvm").exists() => Ok(Self::Tcg),
            AccelPlan::Probe => match tokio::time::timeout(PROBE_LIMIT, firmware_speaks()).await {
                Ok(spoke) => spoke.map(|spoke| if spoke { Self::Kvm } else { Self::Tcg }),
                Err(_) => Ok(Self::Tcg),
            },
        }
    }
}

/// Starts SeaBIOS under KVM with its screen on the serial port, and waits for its name. Dropping the future ends the guest.
async fn firmware_speaks() -> Result<bool, LabError> {
    let machine = ["-machine", "q35,graphics=off", "-accel", "kvm", "-cpu", "max", "-m", "64", "-vga", "none"];
    let mut guest = Command::new("qemu-system-x86_64")
        .args(["-nodefaults", "-no-user-config", "-display", "none", "-serial", "stdio"])
        .args(machine)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .map_err(io("run qemu-system-x86_64 (package qemu-system-x86)"))?;
    let mut screen = Vec::new();
    if let Some(output) = guest.stdout.take() {
        let mut output = output.take(4096);
        let mut chunk = [0; 256];
        while !screen.windows(7).any(|window| window == b"SeaBIOS") {
            match output.read(&mut chunk).await {
                Ok(read) if read > 0 => screen.extend_from_slice(&chunk[..read]),
                Ok(_) | Err(_) => return Ok(false),
            }
        }
    }
    guest.kill().await.map_err(io("end the probe guest"))?;
    Ok(true)
}
