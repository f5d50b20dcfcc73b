//! Writes a single event per minute and source with failed logins, so a flood of guesses does not
//! fill the history. Forgets old failures.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::app::App;
use crate::auth::delays::FORGOTTEN;
use crate::db;
use crate::db::events::NewEvent;
use crate::db::sign_ins::FailureRow;
use crate::error::Error;

const EVERY: Duration = Duration::from_secs(20);
/// Sources with an event of their own per minute. All further sources share a single event.
const SOURCES: usize = 20;
/// Accounts named in an event.
const ACCOUNTS: usize = 16;
/// Time for which a source without a further login is remembered.
const UNUSED: SignedDuration = SignedDuration::from_hours(90 * 24);

/// The failures of a source in a minute.
#[derive(Debug, Default)]
struct Sum {
    failures: i64,
    /// Failures with names without a person.
    unknown: i64,
    /// Failures by account and reason.
    accounts: BTreeMap<(String, String), i64>,
}

pub(super) async fn run(app: App, cancel: CancellationToken) {
    loop {
        if let Err(error) = tell(&app).await {
            tracing::warn!(error = ?error, "failed logins could not be summed up; tried again shortly");
        }
        tokio::select! {
            () = cancel.cancelled() => return,
            () = tokio::time::sleep(EVERY) => {}
        }
    }
}

/// Writes the events of the past minutes, and deletes old counts.
///
/// # Errors
///
/// When the database fails.
pub async fn tell(app: &App) -> Result<(), Error> {
    let now = app.clock.now();
    let mut tx = app.pool.begin().await?;
    let mut minutes: BTreeMap<Timestamp, BTreeMap<String, Sum>> = BTreeMap::new();
    for row in db::sign_ins::take_failures(&mut tx, now).await? {
        let sources = minutes.entry(row.minute).or_default();
        sources.entry(row.source.clone()).or_default().add(row);
    }
    for (minute, sources) in minutes {
        let mut sources: Vec<(String, Sum)> = sources.into_iter().collect();
        sources.sort_by_key(|(_, sum)| Reverse(sum.failures));
        let others = sources.split_off(sources.len().min(SOURCES));
        for (source, sum) in sources {
            db::events::insert(&mut tx, sum.event(now, minute, &source)).await?;
        }
        if !others.is_empty() {
            let source = format!("{} other addresses", others.len());
            let mut rest = Sum::default();
            for (_, sum) in others {
                rest.merge(sum);
            }
            db::events::insert(&mut tx, rest.event(now, minute, &source)).await?;
        }
    }
    tx.commit().await?;
    // A login locks the delay before the failures, so both locks at once could end in a deadlock.
    let mut conn = app.pool.acquire().await?;
    db::sign_ins::delete_old_delays(&mut conn, now - FORGOTTEN, now - UNUSED).await
}

impl Sum {
    fn add(&mut self, row: FailureRow) {
        self.failures += row.failures;
        if row.account.is_empty() {
            self.unknown += row.failures;
        } else {
            *self.accounts.entry((row.account, row.reason)).or_default() += row.failures;
        }
    }

    fn merge(&mut self, other: Self) {
        self.failures += other.failures;
        self.unknown += other.unknown;
        for (account, failures) in other.accounts {
            *self.accounts.entry(account).or_default() += failures;
        }
    }

    fn event(self, now: Timestamp, minute: Timestamp, source: &str) -> NewEvent {
        let mut accounts: Vec<((String, String), i64)> = self.accounts.into_iter().collect();
        accounts.sort_by_key(|(_, failures)| Reverse(*failures));
        let unnamed = accounts.split_off(accounts.len().min(ACCOUNTS)).len();
        let mut parts: Vec<String> = accounts
            .iter()
            .map(|((name, reason), failures)| {
                format!("{name}: {} ({failures})", reason.replace('_', " "))
            })
            .collect();
        if unnamed > 0 {
            parts.push(format!("{unnamed} more accounts"));
        }
        if self.unknown > 0 {
            parts.push(format!("unknown names ({})", self.unknown));
        }
        let from = match source {
            "" => "an unknown address",
            source => source,
        };
        let summary = format!(
            "failed logins from {from} in the minute of {minute:.0}: {}; {}",
            self.failures,
            parts.join(", ")
        );
        let people: Vec<serde_json::Value> = accounts
            .iter()
            .map(|((name, reason), failures)| {
                json!({ "user": name, "reason": reason, "failures": failures })
            })
            .collect();
        NewEvent::new(now, "anonymous", "user.sign_in_failed", summary).with(json!({
            "source": source,
            "minute": minute,
            "failures": self.failures,
            "unknown_names": self.unknown,
            "people": people,
        }))
    }
}
