//! Ends the server and the agent by SIGKILL, in turn, and starts each again at once.

use std::time::Duration;

use super::programs::Programs;
use crate::parts::Part;

/// Kills on until the run is done; how often something was killed.
pub(super) async fn every(pause: Option<Duration>, programs: &Programs) -> anyhow::Result<u32> {
    let Some(pause) = pause else { return Ok(0) };
    let parts: &[Part] = if programs.owns_server() {
        &[Part::Server, Part::Agent]
    } else {
        &[Part::Agent]
    };
    for (kills, part) in (0..).zip(parts.iter().cycle()) {
        tokio::select! {
            () = programs.calmed().cancelled() => return Ok(kills),
            () = tokio::time::sleep(pause) => programs.kill_and_restart(*part).await?,
        }
    }
    Ok(0)
}
