//! Running `ip`: argv only, bounded, with its own words in the error.

use std::process::Command;

use crate::error::{LabError, io};

/// Seconds any one `ip` command may take; it waits for the kernel's network lock at most.
const LIMIT_S: &str = "10";

/// Runs `ip ARGS`.
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
