//! Alerts of Prometheus' Alertmanager: told on the nodes' timelines, and where a rule asks for it, the node is taken out of service. When one alert
//! takes out many nodes at once it is not the nodes: a circuit breaker leaves the rest to a person.

use axum::extract;
use jiff::{SignedDuration, Timestamp};
use muster_api::alerts::{Alert, AlertGroup, AlertHeard, AlertOutcome, AlertStatus, AlertsHeard};
use muster_api::problem::Problem;
use muster_core::ids::OperationId;
use muster_core::lifecycle::state::{State, Wish};
use muster_core::recovery::{WINDOW_S, most};
use serde_json::json;
use sqlx::PgConnection;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::answer::Answer;
use super::extract::Json;
use super::idempotency::IdempotencyKey;
use super::nodes::actions::{self, Asked};
use super::writing::{self, Effect};
use crate::app::App;
use crate::auth::Actor;
use crate::auth::access::Named;
use crate::db;
use crate::db::alerts::NewAlert;
use crate::db::nodes::LockedNode;
use crate::error::Error;

/// Alerts in one request.
const MOST: usize = 1000;
/// How long the circuit breaker remembers: then it closes by itself.
const WINDOW: SignedDuration = SignedDuration::from_secs(WINDOW_S);
/// The label of a rule that asks for more than a line on the timeline, and its value.
const ASKS: (&str, &str) = ("muster", "quarantine");
/// Kept of what a rule says, in characters.
const SAID: usize = 500;

/// The routes of alerts.
pub fn router() -> OpenApiRouter<App> {
    OpenApiRouter::default().routes(routes!(report_alerts))
}

/// Hears alerts, as Alertmanager's `webhook_configs` send them. The same alert again is known. An alert whose labels say `muster="quarantine"` takes its
/// node out of service through the scheduler, unless the same alert took out more than two nodes, and more than one of twenty in service, within the
/// hour: then it is the fleet, and a person decides.
#[utoipa::path(post, path = "/v1/alerts", tag = "alerts", params(("Idempotency-Key" = Option<String>, Header)),
    request_body = AlertGroup, responses(
    (status = 200, description = "Heard: what became of each", body = AlertsHeard),
    (status = 422, description = "Another version than 4, or too many at once", body = Problem, content_type = "application/problem+json"),
))]
async fn report_alerts(
    extract::State(app): extract::State<App>,
    actor: Actor,
    idempotency: IdempotencyKey,
    Json(group): Json<AlertGroup>,
) -> Result<Answer, Error> {
    check(&group)?;
    writing::once(&app, &actor, idempotency, &group, async |conn| {
        db::alerts::one_at_a_time(conn).await?;
        let mut alerts = Vec::with_capacity(group.alerts.len());
        for alert in &group.alerts {
            alerts.push(hear(conn, &app, &actor, alert).await?);
        }
        Answer::ok(&AlertsHeard { alerts }).map(Effect::Done)
    })
    .await
}

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

/// What there is to say of one alert.
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

async fn hear(
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
    let Some(key) = machine(alert) else {
        let why = "neither the label node nor instance is there".to_owned();
        return Ok(answer(
            None,
            Became::because(AlertOutcome::UnknownNode, why),
        ));
    };
    let found = db::alerts::find_node(conn, key).await?;
    let named = found.clone().unwrap_or_else(|| key.to_owned());
    // A node that somebody may not see does not exist for them.
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
        AlertStatus::Firing => fires(conn, app, actor, &node, alert).await?,
        AlertStatus::Resolved => ends(conn, app, actor, &node, alert).await?,
    };
    Ok(answer(Some(node.name), became))
}

/// The name or address of the machine that an alert is about, without the port of what was scraped there.
fn machine(alert: &Alert) -> Option<&str> {
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

fn kept<'a>(node: &LockedNode, alert: &'a Alert) -> NewAlert<'a> {
    NewAlert {
        node: node.id,
        fingerprint: &alert.fingerprint,
        starts_at: alert.starts_at,
        name: cut(
            alert
                .labels
                .get("alertname")
                .map_or("alert", String::as_str),
            200,
        ),
    }
}

async fn ends(
    conn: &mut PgConnection,
    app: &App,
    actor: &Actor,
    node: &LockedNode,
    alert: &Alert,
) -> Result<Became, Error> {
    let now = app.clock.now();
    let kept = kept(node, alert);
    if !db::alerts::end(conn, kept, now).await? {
        return Ok(Became::only(AlertOutcome::Known));
    }
    tell(
        conn,
        actor,
        now,
        (
            "alert.resolved",
            format!("{}: alert {} is over", node.name, kept.name),
        ),
        (node, alert),
    )
    .await?;
    Ok(Became::only(AlertOutcome::Noted))
}

async fn fires(
    conn: &mut PgConnection,
    app: &App,
    actor: &Actor,
    node: &LockedNode,
    alert: &Alert,
) -> Result<Became, Error> {
    let now = app.clock.now();
    let kept = kept(node, alert);
    let before = db::alerts::find(conn, kept).await?;
    // One that could not take its node out then is tried again; whatever else became of it stays.
    if before.as_deref().is_some_and(|became| became != "refused") {
        return Ok(Became::only(AlertOutcome::Known));
    }
    let said = said(alert);
    let became = match alert
        .labels
        .get(ASKS.0)
        .is_some_and(|value| value == ASKS.1)
    {
        true => take_out(conn, app, actor, (node, &kept), &said).await?,
        false => Became::only(AlertOutcome::Noted),
    };
    let (word, kind) = match became.outcome {
        AlertOutcome::Quarantined => ("quarantined", "alert.firing"),
        AlertOutcome::HeldBack => ("held_back", "alert.held_back"),
        AlertOutcome::Refused => ("refused", "alert.firing"),
        AlertOutcome::Noted | AlertOutcome::Known | AlertOutcome::UnknownNode => {
            ("noted", "alert.firing")
        }
    };
    db::alerts::set(conn, kept, word, now).await?;
    if before.as_deref() != Some(word) {
        let because = became
            .because
            .as_deref()
            .map(|why| format!("; {why}"))
            .unwrap_or_default();
        tell(
            conn,
            actor,
            now,
            (kind, format!("{}: alert {said}{because}", node.name)),
            (node, alert),
        )
        .await?;
    }
    Ok(became)
}

/// Takes the node out, unless so many were by the same alert that it is not the node.
async fn take_out(
    conn: &mut PgConnection,
    app: &App,
    actor: &Actor,
    (node, kept): (&LockedNode, &NewAlert<'_>),
    said: &str,
) -> Result<Became, Error> {
    let now = app.clock.now();
    // A node that is worked on stops answering, too. Whoever has it in hand is not interrupted; where the alert still fires afterwards, it is heard then.
    if ![State::InService, State::Available]
        .iter()
        .any(|state| state.as_str() == node.state)
    {
        let why = format!(
            "{} is {}: it is taken out if this still fires once it serves, or is free",
            node.name, node.state
        );
        return Ok(Became::because(AlertOutcome::Refused, why));
    }
    let signature = format!("alert:{}", kept.name);
    // What a person has looked at is forgotten.
    let since = db::breakers::find_reset(conn, &signature)
        .await?
        .map_or(now - WINDOW, |reset| reset.max(now - WINDOW));
    let (taken, serving) = db::alerts::taken_out(conn, kept.name, since).await?;
    let too_many = taken >= i64::from(most(u32::try_from(serving).unwrap_or(u32::MAX)));
    // The nodes that opened it may be out for longer than an hour by now: it holds until its own end.
    if too_many || db::breakers::is_open(conn, &signature, now).await? {
        let why = match too_many {
            true => format!(
                "{} took out {taken} nodes within the hour: it is not taken out, for that is more than chance; quarantine it if it is the node",
                kept.name
            ),
            false => {
                format!(
                    "the breaker of {signature} is open: it is not taken out; quarantine it if it is the node"
                )
            }
        };
        db::breakers::open(conn, &signature, &why, Some(now + WINDOW), now).await?;
        return Ok(Became::because(AlertOutcome::HeldBack, why));
    }
    let reason = format!("alert {said}");
    let asked = Asked {
        wish: Wish::Quarantine,
        reason: Some(&reason),
        until: None,
        suite: None,
    };
    match actions::write_wish(conn, app, actor, node, asked).await {
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

/// `GpuXid79: GPU 3 has fallen off the bus`.
fn said(alert: &Alert) -> String {
    let name = alert
        .labels
        .get("alertname")
        .map_or("without a name", String::as_str);
    let text = ["summary", "description"]
        .iter()
        .find_map(|word| alert.annotations.get(*word));
    let text = text
        .map(|text| format!(": {}", cut(text, SAID)))
        .unwrap_or_default();
    format!("{}{text}", cut(name, 200))
}

async fn tell(
    conn: &mut PgConnection,
    actor: &Actor,
    now: Timestamp,
    (kind, summary): (&'static str, String),
    (node, alert): (&LockedNode, &Alert),
) -> Result<(), Error> {
    let labels: serde_json::Map<_, _> = alert
        .labels
        .iter()
        .take(64)
        .map(|(name, value)| (cut(name, 200).to_owned(), json!(cut(value, SAID))))
        .collect();
    let detail =
        json!({ "fingerprint": alert.fingerprint, "starts_at": alert.starts_at, "labels": labels });
    db::events::insert(
        conn,
        actor.event(now, kind, Some(node.id), summary).with(detail),
    )
    .await
}

fn cut(text: &str, most: usize) -> &str {
    text.char_indices()
        .nth(most)
        .map_or(text, |(end, _)| &text[..end])
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
