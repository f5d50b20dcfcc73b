//! This machine's clock compared with the clocks of the database and the server, and the state of
//! time synchronisation.

use std::process::Stdio;
use std::time::Duration;

use jiff::Timestamp;
use jiff::fmt::rfc2822::DateTimeParser;
use tokio::process::Command;

use super::{Found, Host, Part, database};

const PATIENCE: Duration = Duration::from_secs(3);
/// Larger differences become visible in the history.
const WRONG_S: f64 = 300.0;
/// Uncertainty of a header in whole seconds plus the round trip.
const NEAR_S: f64 = 3.0;

pub(super) async fn check(host: &Host) -> Vec<Found> {
    let mut found = vec![kept().await];
    if host.is(Part::Server) && host.args.database_url.is_some() {
        found.extend(against_database(host).await);
    }
    found.extend(against_server(host).await);
    found
}

/// Returns the difference to another clock.
fn compare(ahead_s: f64, other: &str) -> Found {
    let said = format!(
        "this clock is {:.1} s {} {other}",
        ahead_s.abs(),
        if ahead_s < 0.0 { "behind" } else { "ahead of" }
    );
    let todo = "set it by NTP: timedatectl set-ntp true, or chrony";
    match ahead_s.abs() {
        off if off > WRONG_S => Found::fail(said, todo),
        off if off > NEAR_S => Found::warn(said, todo),
        _ => Found::ok(format!("this clock agrees with {other}")),
    }
}

async fn against_database(host: &Host) -> Option<Found> {
    let pool = database::connect(host).await.ok()?;
    let said = sqlx::query_scalar::<_, f64>("SELECT extract(epoch FROM clock_timestamp())::float8")
        .fetch_one(&pool)
        .await;
    let theirs = said.ok()?;
    Some(compare(
        seconds(host.clock.now()) - theirs,
        "the database's",
    ))
}

async fn against_server(host: &Host) -> Option<Found> {
    let http = reqwest::Client::builder()
        .timeout(PATIENCE)
        .no_proxy()
        .build()
        .ok()?;
    let answer = http
        .get(format!("{}/healthz", host.url.trim_end_matches('/')))
        .send()
        .await
        .ok()?;
    let date = answer.headers().get("date")?.to_str().ok()?;
    let theirs = DateTimeParser::new()
        .parse_timestamp(date.replace("GMT", "+0000"))
        .ok()?;
    Some(compare(
        seconds(host.clock.now()) - seconds(theirs) - 0.5,
        "the server's",
    ))
}

fn seconds(at: Timestamp) -> f64 {
    at.as_duration().as_secs_f64()
}

/// Returns whether a time service synchronises the clock.
async fn kept() -> Found {
    let mut command = Command::new("timedatectl");
    command
        .args(["show", "-p", "NTPSynchronized", "--value"])
        .stdin(Stdio::null())
        .kill_on_drop(true);
    let said = match tokio::time::timeout(PATIENCE, command.output()).await {
        Ok(Ok(output)) if output.status.success() => {
            String::from_utf8_lossy(&output.stdout).trim().to_owned()
        }
        _ => String::new(),
    };
    match said.as_str() {
        "yes" => Found::ok("the clock is synchronised by NTP"),
        "no" => Found::warn(
            "the clock is not synchronised",
            "timedatectl set-ntp true, or install chrony",
        ),
        _ => Found::unknown(
            "the state of clock synchronisation is unknown",
            "look with `chronyc tracking` or `timedatectl`",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Verdict;
    use super::*;

    #[test]
    fn a_clock_is_wrong_in_either_direction() {
        let verdicts =
            [0.4, -2.0, 10.0, -10.0, 400.0, -400.0].map(|ahead| compare(ahead, "the server's").0);
        use Verdict::{Fail, Ok, Warn};
        assert_eq!(verdicts, [Ok, Ok, Warn, Warn, Fail, Fail]);
    }
}
