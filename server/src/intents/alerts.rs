//! Alerts of Prometheus' Alertmanager. Each alert is recorded on the node's timeline. An alerting
//! rule can also request the quarantine of the node. Where one alert takes out many nodes at once,
//! the cause is outside the nodes: a circuit breaker opens, and a person decides on the rest.

use jiff::{SignedDuration, Timestamp};
use muster_api::alerts::{Alert, AlertGroup, AlertHeard, AlertOutcome, AlertStatus, AlertsHeard};
use muster_core::ids::OperationId;
use muster_core::lifecycle::state::{Action, State};
use muster_core::recovery::{WINDOW_S, most};
use serde_json::json;
use sqlx::PgConnection;

use crate::app::App;
use crate::auth::Actor;
use crate::auth::access::Named;
use crate::db;
use crate::db::alerts::NewAlert;
use crate::db::nodes::LockedNode;
use crate::error::Error;
use crate::intents::answer::Answer;
use crate::intents::idempotency::IdempotencyKey;
use crate::intents::nodes::requests::{self, ActionRequest};
use crate::intents::writing::{self, Effect};

/// The largest number of alerts in one request.
const MOST: usize = 1000;
/// The time after which an open circuit breaker closes without a person.
const WINDOW: SignedDuration = SignedDuration::from_secs(WINDOW_S);
/// The label of a rule requesting a quarantine, and the label's value. Without the label, an alert
/// adds only a line to the timeline.
const ASKS: (&str, &str) = ("muster", "quarantine");
/// The longest kept text of a rule, in characters.
const LONGEST_TEXT: usize = 500;

fn check(group: &AlertGroup) -> Result<(), Error> {
    if group.version != "4" {
        let detail = "This reads version 4 of Alertmanager's webhook.";
        return Err(Error::unprocessable("/version", "unknown", detail));
    }
    if group.alerts.len() > MOST {
        let detail = format!("At most {MOST} alerts at once; set `max_alerts` of the receiver.");
        return Err(Error::unprocessable("/alerts", "out_of_range", detail));
    }
    let wrong = |alert: &Alert| alert.fingerprint.is_empty() || alert.fingerprint.len() > 64;
    match group.alerts.iter().position(wrong) {
        Some(at) => Err(Error::unprocessable(
            format!("/alerts/{at}/fingerprint"),
            "out_of_range",
            "1 to 64 bytes.",
        )),
        None => Ok(()),
    }
}

/// The result of one alert.
struct Became {
    outcome: AlertOutcome,
    because: Option<String>,
    operation: Option<OperationId>,
}

impl Became {
    fn only(outcome: AlertOutcome) -> Self {
        Self {
            outcome,
            because: None,
            operation: None,
        }
    }

    fn because(outcome: AlertOutcome, why: String) -> Self {
        Self {
            because: Some(why),
            ..Self::only(outcome)
        }
    }
}

/// Finds the node of an alert and handles the alert. An alert for an unknown node is answered, not
/// rejected, so that the other alerts of the group are processed.
async fn process_alert(
    conn: &mut PgConnection,
    app: &App,
    actor: &Actor,
    alert: &Alert,
) -> Result<AlertHeard, Error> {
    let answer = |node: Option<String>, became: Became| AlertHeard {
        fingerprint: alert.fingerprint.clone(),
        node,
        outcome: became.outcome,
        because: became.because,
        operation: became.operation.map(|id| id.0),
    };
    let Some(key) = find_machine(alert) else {
        let why = "the alert has neither the label node nor the label instance".to_owned();
        return Ok(answer(
            None,
            Became::because(AlertOutcome::UnknownNode, why),
        ));
    };
    let found = db::alerts::find_node(conn, key).await?;
    let named = found.clone().unwrap_or_else(|| key.to_owned());
    // For a node outside the actor's read scope, answer as for an unknown node.
    match actor
        .need(
            conn,
            "node.quarantine",
            Named {
                kind: "node",
                key: &named,
            },
        )
        .await
    {
        Ok(()) => {}
        Err(Error::Forbidden(why)) => {
            return Ok(answer(found, Became::because(AlertOutcome::Refused, why)));
        }
        Err(Error::NotFound(_)) => {
            return Ok(answer(None, Became::only(AlertOutcome::UnknownNode)));
        }
        Err(error) => return Err(error),
    }
    let node = match found {
        Some(name) => db::nodes::find_for_update(conn, &name).await?,
        None => None,
    };
    let Some(node) = node else {
        return Ok(answer(None, Became::only(AlertOutcome::UnknownNode)));
    };
    let became = match alert.status {
        AlertStatus::Firing => handle_firing(conn, app, actor, &node, alert).await?,
        AlertStatus::Resolved => handle_resolved(conn, app, actor, &node, alert).await?,
    };
    Ok(answer(Some(node.name), became))
}

/// The name or address of the machine in an alert, without the port of the scraped exporter.
fn find_machine(alert: &Alert) -> Option<&str> {
    let label = |name: &str| {
        alert
            .labels
            .get(name)
            .map(String::as_str)
            .filter(|value| !value.is_empty())
    };
    label("node").or_else(|| label("instance").map(without_port))
}

fn without_port(instance: &str) -> &str {
    match instance.rsplit_once(':') {
        Some((host, port))
            if port.parse::<u16>().is_ok() && (!host.contains(':') || host.ends_with(']')) =>
        {
            host.trim_start_matches('[').trim_end_matches(']')
        }
        _ => instance,
    }
}

/// The key of an alert in the database.
fn alert_key<'a>(node: &LockedNode, alert: &'a Alert) -> NewAlert<'a> {
    NewAlert {
        node: node.id,
        fingerprint: &alert.fingerprint,
        starts_at: alert.starts_at,
        name: cut_text(
            alert
                .labels
                .get("alertname")
                .map_or("alert", String::as_str),
            200,
        ),
    }
}

/// Ends a recorded alert.
async fn handle_resolved(
    conn: &mut PgConnection,
    app: &App,
    actor: &Actor,
    node: &LockedNode,
    alert: &Alert,
) -> Result<Became, Error> {
    let now = app.clock.now();
    let key = alert_key(node, alert);
    if !db::alerts::end(conn, key, now).await? {
        return Ok(Became::only(AlertOutcome::Known));
    }
    let summary = format!("{}: alert {} is over", node.name, key.name);
    record(conn, actor, now, "alert.resolved", summary, node, alert).await?;
    Ok(Became::only(AlertOutcome::Noted))
}

/// Records an alert, and takes the node out of service where the rule requests a quarantine.
async fn handle_firing(
    conn: &mut PgConnection,
    app: &App,
    actor: &Actor,
    node: &LockedNode,
    alert: &Alert,
) -> Result<Became, Error> {
    let now = app.clock.now();
    let key = alert_key(node, alert);
    let before = db::alerts::find(conn, key).await?;
    let again = db::alerts::reopen(conn, key).await?;
    // A refused alert is tried again. Every other outcome is final, also for an alert that fires after
    // its end: a second Alertmanager may send a begin late, and a person may have returned the node.
    if before.is_some_and(|became| became != AlertOutcome::Refused) {
        if again {
            let summary = format!("{}: alert {} fires again", node.name, key.name);
            record(conn, actor, now, "alert.firing", summary, node, alert).await?;
        }
        return Ok(Became::only(AlertOutcome::Known));
    }
    let text = describe_alert(alert);
    let became = match alert
        .labels
        .get(ASKS.0)
        .is_some_and(|value| value == ASKS.1)
    {
        true => take_out(conn, app, actor, node, key.name, &text).await?,
        false => Became::only(AlertOutcome::Noted),
    };
    let kind = match became.outcome {
        AlertOutcome::HeldBack => "alert.held_back",
        _ => "alert.firing",
    };
    db::alerts::set(conn, key, became.outcome, now).await?;
    if again || before != Some(became.outcome) {
        let because = became
            .because
            .as_deref()
            .map(|why| format!("; {why}"))
            .unwrap_or_default();
        let summary = format!("{}: alert {text}{because}", node.name);
        record(conn, actor, now, kind, summary, node, alert).await?;
    }
    Ok(became)
}

/// Takes the node out of service. Where the same alert took out too many nodes within the hour,
/// opens the circuit breaker instead.
async fn take_out(
    conn: &mut PgConnection,
    app: &App,
    actor: &Actor,
    node: &LockedNode,
    name: &str,
    text: &str,
) -> Result<Became, Error> {
    // A node under work may also stop answering, and the work must not be interrupted. If the alert
    // still fires afterwards, a later report takes the node out.
    if !matches!(node.state, State::InService | State::Available) {
        let why = format!(
            "{} is {}: the node is quarantined if the alert still fires once the node is in service or available",
            node.name, node.state
        );
        return Ok(Became::because(AlertOutcome::Refused, why));
    }
    if let Some(why) = check_breaker(conn, name, app.clock.now()).await? {
        return Ok(Became::because(AlertOutcome::HeldBack, why));
    }
    let reason = format!("alert {text}");
    let request = ActionRequest {
        action: Action::Quarantine,
        reason: Some(&reason),
        until: None,
        suite: None,
        override_budget: None,
    };
    match requests::write_action(conn, app, actor, node, request).await {
        Ok(operation) => Ok(Became {
            operation: Some(operation),
            ..Became::only(AlertOutcome::Quarantined)
        }),
        Err(Error::Conflict { detail, .. } | Error::Busy { detail, .. }) => {
            Ok(Became::because(AlertOutcome::Refused, detail))
        }
        Err(error) => Err(error),
    }
}

/// Why an alert may take out no further node: the alert's breaker is open, or opens now.
async fn check_breaker(
    conn: &mut PgConnection,
    name: &str,
    now: Timestamp,
) -> Result<Option<String>, Error> {
    let signature = format!("alert:{name}");
    // Count only nodes taken out after a person last reset the breaker.
    let since = db::breakers::find_reset(conn, &signature)
        .await?
        .map_or(now - WINDOW, |reset| reset.max(now - WINDOW));
    let (taken, serving) = db::alerts::taken_out(conn, name, since).await?;
    let too_many = taken >= i64::from(most(u32::try_from(serving).unwrap_or(u32::MAX)));
    // The breaker stays open until its own end, even where the nodes behind the breaker were taken
    // out more than an hour ago.
    if !too_many && !db::breakers::is_open(conn, &signature, now).await? {
        return Ok(None);
    }
    let why = match too_many {
        true => format!(
            "{name} took out {taken} nodes within the hour, more than chance explains, so this node stays in service; quarantine the node if the node is the cause"
        ),
        false => format!(
            "the breaker of {signature} is open, so this node stays in service; quarantine the node if the node is the cause"
        ),
    };
    db::breakers::open(conn, &signature, &why, Some(now + WINDOW), now).await?;
    Ok(Some(why))
}

/// The name and text of an alert: `GpuXid79: GPU 3 has fallen off the bus`.
fn describe_alert(alert: &Alert) -> String {
    let name = alert
        .labels
        .get("alertname")
        .map_or("without a name", String::as_str);
    let text = ["summary", "description"]
        .iter()
        .find_map(|word| alert.annotations.get(*word));
    let text = text
        .map(|text| format!(": {}", cut_text(text, LONGEST_TEXT)))
        .unwrap_or_default();
    format!("{}{text}", cut_text(name, 200))
}

/// Writes an event of an alert into the node's history.
async fn record(
    conn: &mut PgConnection,
    actor: &Actor,
    now: Timestamp,
    kind: &'static str,
    summary: String,
    node: &LockedNode,
    alert: &Alert,
) -> Result<(), Error> {
    let labels: serde_json::Map<_, _> = alert
        .labels
        .iter()
        .take(64)
        .map(|(name, value)| {
            (
                cut_text(name, 200).to_owned(),
                json!(cut_text(value, LONGEST_TEXT)),
            )
        })
        .collect();
    let detail =
        json!({ "fingerprint": alert.fingerprint, "starts_at": alert.starts_at, "labels": labels });
    db::events::insert(
        conn,
        actor.event(now, kind, Some(node.id), summary).with(detail),
    )
    .await
}

fn cut_text(text: &str, most: usize) -> &str {
    text.char_indices()
        .nth(most)
        .map_or(text, |(end, _)| &text[..end])
}

/// Processes the alerts of one group, in their order.
///
/// # Errors
/// 422 for a group with too many alerts.
pub async fn report(
    app: &App,
    actor: &Actor,
    idempotency: IdempotencyKey,
    group: &AlertGroup,
) -> Result<Answer, Error> {
    check(group)?;
    writing::once(app, actor, idempotency, group, async |conn| {
        db::alerts::one_at_a_time(conn).await?;
        let mut alerts = Vec::with_capacity(group.alerts.len());
        for alert in &group.alerts {
            alerts.push(process_alert(conn, app, actor, alert).await?);
        }
        Answer::ok(&AlertsHeard { alerts }).map(Effect::Done)
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::without_port;

    #[test]
    fn what_was_scraped_is_a_machine_and_a_port() {
        for (instance, machine) in [
            ("n1:9400", "n1"),
            ("10.0.0.5:9100", "10.0.0.5"),
            ("[2001:db8::5]:9100", "2001:db8::5"),
            ("2001:db8::5", "2001:db8::5"),
            ("n1", "n1"),
            ("n1:metrics", "n1:metrics"),
        ] {
            assert_eq!(without_port(instance), machine);
        }
    }
}
