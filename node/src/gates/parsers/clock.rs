//! Offset of the node's clock from the agent's clock, because munge and TLS need close clocks.
//! Works without an NTP server. Also shows that the clocks of a site agree, which NTP does not
//! show.

use std::time::{Duration, Instant};

use muster_core::wire::node::TimeReply;

use super::{Bench, Reading, json};

const TRIES: usize = 3;
const TIMEOUT: Duration = Duration::from_secs(5);
const REPLY_MAX: u64 = 4096;

pub(super) fn measure(bench: &Bench<'_>) -> Result<Reading, String> {
    let url = bench
        .plan
        .variables
        .get("agent_url")
        .ok_or("no variable agent_url was given")?;
    let url = format!("{}/time", url.trim_end_matches('/'));
    let agent: ureq::Agent = ureq::Agent::config_builder()
        .timeout_global(Some(TIMEOUT))
        .max_redirects(0)
        .build()
        .into();
    let mut best: Option<(f64, f64)> = None;
    for _ in 0..TRIES {
        let started = Instant::now();
        let before = bench.cx.clock().now();
        let mut reply = agent
            .get(&url)
            .call()
            .map_err(|error| format!("the agent's clock at {url}: {error}"))?;
        let body = reply
            .body_mut()
            .with_config()
            .limit(REPLY_MAX)
            .read_to_string()
            .map_err(|error| error.to_string())?;
        let trip_ms = started.elapsed().as_secs_f64() * 1e3;
        let TimeReply { unix_ms } = json(&body)?;
        let offset_ms = at_most(
            unix_ms as f64 - before.as_microsecond() as f64 / 1e3,
            trip_ms,
        );
        if best.is_none_or(|(_, best_trip)| trip_ms < best_trip) {
            best = Some((offset_ms, trip_ms));
        }
    }
    let (offset_ms, trip_ms) = best.ok_or("the agent's clock was not asked")?;
    let mut reading = Reading::default();
    reading.add("clock.offset", offset_ms);
    reading.notes.push(format!(
        "at most {offset_ms:.1} ms from the agent's clock, over a round trip of {trip_ms:.1} ms"
    ));
    Ok(reading)
}

/// Returns the largest possible offset of the two clocks in milliseconds. `ahead_ms` is the agent's
/// time minus the node's time before the round trip. The agent read its clock at an unknown moment
/// of the round trip, so the uncertainty is half of `trip_ms`.
fn at_most(ahead_ms: f64, trip_ms: f64) -> f64 {
    (ahead_ms - trip_ms / 2.0).abs() + trip_ms / 2.0
}

#[cfg(test)]
mod tests {
    #[test]
    fn half_a_trip_is_the_doubt() {
        let cases = [
            (0.0, 0.0, 0.0),
            (5.0, 10.0, 5.0),
            (10.0, 10.0, 10.0),
            (0.0, 10.0, 10.0),
            (-90.0, 20.0, 110.0),
        ];
        for (ahead_ms, trip_ms, wanted) in cases {
            let off = super::at_most(ahead_ms, trip_ms);
            assert!(
                (off - wanted).abs() < 1e-9,
                "{ahead_ms} over {trip_ms}: {off}"
            );
        }
    }
}
