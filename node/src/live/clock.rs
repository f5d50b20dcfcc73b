//! Sets the clock from the agent's clock: certificates and logs need the time, and a board with an
//! empty battery starts in 1970.

use std::time::Duration;

use jiff::Timestamp;
use muster_core::wire::node::{Failure, FailureCode, TimeReply};
use nix::sys::time::TimeSpec;
use nix::time::{ClockId, clock_settime};

use super::report::agent;
use crate::failure::{fatal, retryable};
use crate::job::JobContext;
use crate::tool::{self, Call};

/// Largest difference left uncorrected, in milliseconds: the answer's own travel time causes part
/// of the difference.
const TOLERANCE_MS: i64 = 250;

/// Asks the agent for the time and sets the kernel's clock and the hardware clock.
///
/// # Errors
/// `clock` when the agent does not answer or the kernel refuses.
pub fn set(cx: &JobContext, url: &str) -> Result<(), Failure> {
    let lost = |error: ureq::Error| retryable(FailureCode::Clock, format!("{url}/time: {error}"));
    let mut reply = agent(Duration::from_secs(10))
        .get(format!("{url}/time"))
        .call()
        .map_err(lost)?;
    let body = reply
        .body_mut()
        .with_config()
        .limit(4096)
        .read_to_vec()
        .map_err(lost)?;
    let TimeReply { unix_ms } = serde_json::from_slice(&body)
        .map_err(|error| retryable(FailureCode::Clock, format!("{url}/time: {error}")))?;
    let there = Timestamp::from_millisecond(unix_ms)
        .map_err(|error| fatal(FailureCode::Clock, error.to_string()))?;
    let here = cx.clock().now().as_millisecond();
    if (unix_ms - here).abs() <= TOLERANCE_MS {
        return Ok(());
    }
    let time = TimeSpec::new(there.as_second(), i64::from(there.subsec_nanosecond()));
    clock_settime(ClockId::CLOCK_REALTIME, time).map_err(|errno| {
        fatal(
            FailureCode::Clock,
            format!("the kernel refuses the time: {errno}"),
        )
    })?;
    cx.log(&format!(
        "muster: clock set from {here} to {unix_ms} (Unix ms)"
    ));
    // The hardware clock only helps the next boot; on many machines the clock cannot be set, so a
    // failure is ignored.
    let argv = ["hwclock", "--systohc", "--utc"];
    let _ = tool::run(
        cx,
        &Call {
            argv: &argv,
            timeout: Some(Duration::from_secs(5)),
            ..Call::default()
        },
    );
    Ok(())
}
