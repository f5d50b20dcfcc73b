//! Runs `ip` with an argument list and a time limit; the error contains the output of `ip`.

use std::process::Command;

use crate::error::{LabError, io};

/// Time limit of an `ip` command in seconds. The longest expected wait is for the kernel's network
/// lock.
const LIMIT_S: &str = "10";

/// Runs `ip ARGS`, without a shell.
pub(crate) fn run(args: &[&str]) -> Result<(), LabError> {
    let output = Command::new("timeout")
        .arg(LIMIT_S)
        .arg("ip")
        .args(args)
        .output()
        .map_err(io("run ip"))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(LabError::Command {
            command: format!("ip {}", args.join(" ")),
            why: format!(
                "{}: {}",
                output.status,
                String::from_utf8_lossy(&output.stderr).trim()
            ),
        }),
    }
}
