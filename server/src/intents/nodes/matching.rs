//! Match of a discovered machine with a declared node. The machine was discovered under a separate
//! record, because the node declares other MACs. The observations move to the declared node, and
//! the record of the machine is deleted.

use muster_api::nodes::{MatchNode, NodePlan};
use muster_core::effects::Effect as Cost;
use muster_core::facts::Smbios;
use muster_core::lifecycle::state::State as NodeState;
use muster_core::values::Mac;
use serde_json::{Value, json};
use sqlx::PgConnection;

use crate::app::App;
use crate::auth::Actor;
use crate::auth::access::Named;
use crate::db;
use crate::db::nodes::LockedNode;
use crate::document::Document;
use crate::error::Error;
use crate::intents::answer::Answer;
use crate::intents::dry_run;
use crate::intents::idempotency::IdempotencyKey;
use crate::intents::nodes::{blockers, write};
use crate::intents::preconditions::Preconditions;
use crate::intents::writing::{self, Effect};

/// The discovered machine and the declared node, both locked.
pub(crate) struct Pair {
    machine: LockedNode,
    node: LockedNode,
}

impl Pair {
    /// Locks both nodes in the order of their ids, as every transaction with two nodes does. The
    /// actor needs the permission to match both.
    async fn lock(
        conn: &mut PgConnection,
        actor: &Actor,
        machine: &str,
        node: &str,
    ) -> Result<Self, Error> {
        let missing = || {
            Error::unprocessable(
                "/to",
                "not_found",
                format!("There is no node called {node:?}."),
            )
        };
        let found = db::nodes::find_id(conn, machine)
            .await?
            .ok_or_else(|| Error::NotFound(format!("node {machine:?}")))?;
        let to = db::nodes::find_id(conn, node).await?.ok_or_else(missing)?;
        if found == to {
            return Err(Error::unprocessable(
                "/to",
                "same",
                "A node is not matched with itself.",
            ));
        }
        match actor
            .need(
                conn,
                "node.match",
                Named {
                    kind: "node",
                    key: &to.to_string(),
                },
            )
            .await
        {
            Err(Error::NotFound(_)) => return Err(missing()),
            other => other?,
        }
        let mut held = Vec::new();
        for id in [found.min(to), found.max(to)] {
            held.push(write::find(conn, &id.to_string()).await?);
        }
        let second = held.pop();
        match (held.pop(), second) {
            (Some(one), Some(other)) if one.id == found => Ok(Self {
                machine: one,
                node: other,
            }),
            (Some(one), Some(other)) => Ok(Self {
                machine: other,
                node: one,
            }),
            _ => Err(missing()),
        }
    }

    /// The reasons against the match.
    fn find_blockers(&self) -> Vec<String> {
        let Self { machine, node } = self;
        let mut blockers: Vec<String> = [machine, node]
            .into_iter()
            .filter_map(describe_hold)
            .collect();
        let was_declared =
            machine.spec["power"].get("manual").is_none() || machine.profile_id.is_some();
        if was_declared {
            blockers.push(format!(
                "{} is a declared node; only a discovered machine can be matched.",
                machine.name
            ));
        }
        if machine.site_id != node.site_id {
            blockers.push(format!(
                "{} was seen in another site than {}'s.",
                machine.name, node.name
            ));
        }
        if matches!(node.state, NodeState::Available | NodeState::Retired) {
            blockers.push(format!(
                "{} is {}: the node does not wait for a machine.",
                node.name, node.state
            ));
        }
        blockers
    }

    /// The changes of the match, one sentence for each.
    fn describe_changes(&self, spec: &Value) -> Vec<String> {
        let Self { machine, node } = self;
        let mut changes = Vec::new();
        for member in ["serial", "smbios_uuid"] {
            if node.spec.get(member) != spec.get(member) {
                changes.push(format!(
                    "{member}: {} → {}",
                    format_text(&node.spec[member]),
                    format_text(&spec[member])
                ));
            }
        }
        let macs = |spec: &Value| {
            let macs = spec["macs"].as_array().into_iter().flatten();
            macs.map(|mac| format_text(&mac["mac"]))
                .collect::<Vec<_>>()
                .join(", ")
        };
        changes.push(format!("macs: {} → {}", macs(&node.spec), macs(spec)));
        changes.push(format!(
            "the record of {} is deleted, and its observations move to {}",
            machine.name, node.name
        ));
        changes
    }
}

/// The reason why a node cannot change now; `None` when a change is possible.
fn describe_hold(node: &LockedNode) -> Option<String> {
    let name = &node.name;
    let resting = node.state.is_resting() && node.action.is_none();
    match () {
        () if node.protected => Some(format!("{name} is protected; clear that first.")),
        () if node.claimed => Some(format!("{name} is claimed; delete its claim first.")),
        () if node.state == NodeState::InService => Some(format!("{name} is in service.")),
        () if !resting => {
            let action = node
                .action
                .map(|action| format!(" and was asked to {action}"))
                .unwrap_or_default();
            Some(format!(
                "{name} is {}{action}; wait until that is over, or quarantine it.",
                node.state
            ))
        }
        () => None,
    }
}

/// Merges the machine's MACs into the declared spec, in the places of the replaced MACs. A declared
/// serial or UUID is corrected where the machine reports another.
fn merge_spec(
    declared: &Value,
    seen: &[Mac],
    replaces: Option<&[Mac]>,
    smbios: Option<&Smbios>,
) -> Result<Value, Error> {
    let mut macs = declared["macs"].as_array().cloned().unwrap_or_default();
    let of = |entry: &Value| {
        entry["mac"]
            .as_str()
            .and_then(|mac| mac.parse::<Mac>().ok())
    };
    let replaced = match (replaces, macs.as_slice()) {
        (Some(named), _) => named.to_vec(),
        (None, [only]) => of(only).into_iter().collect(),
        (None, all) => {
            let detail = format!(
                "{} MACs are declared: name the MACs to replace by those of the machine, or `[]` to add the machine's MACs.",
                all.len()
            );
            return Err(Error::unprocessable("/replaces", "required", detail));
        }
    };
    if let Some(at) = replaced
        .iter()
        .position(|mac| !macs.iter().any(|entry| of(entry) == Some(*mac)))
    {
        let detail = format!("{} is not declared for the node.", replaced[at]);
        return Err(Error::unprocessable(
            format!("/replaces/{at}"),
            "not_found",
            detail,
        ));
    }
    let mut seen = seen.iter();
    macs.retain_mut(|entry| {
        if !of(entry).is_some_and(|mac| replaced.contains(&mac)) {
            return true;
        }
        // The entry keeps its subnet and its address. An entry without a new MAC is removed.
        seen.next().map(|mac| entry["mac"] = json!(mac)).is_some()
    });
    macs.extend(seen.map(|mac| json!({ "mac": mac })));
    let mut spec = declared.clone();
    spec["macs"] = macs.into();
    let smbios =
        |part: fn(&Smbios) -> &Option<String>| smbios.and_then(|smbios| part(smbios).clone());
    for (member, reported) in [
        ("serial", smbios(|it| &it.serial)),
        ("smbios_uuid", smbios(|it| &it.uuid)),
    ] {
        if let (Some(reported), Some(before)) =
            (reported, declared.get(member).and_then(Value::as_str))
            && !before.eq_ignore_ascii_case(&reported)
        {
            spec[member] = reported.into();
        }
    }
    Ok(spec)
}

fn format_text(value: &Value) -> String {
    value.as_str().unwrap_or("none").to_owned()
}

/// Writes the merged spec, moves the observations to the declared node, and deletes the record of
/// the machine. The marks of the machine follow the write, because MACs replaced by the write belong
/// to another machine.
async fn bind(
    conn: &mut PgConnection,
    app: &App,
    actor: &Actor,
    pair: &Pair,
    spec: Value,
) -> Result<(), Error> {
    let Pair { machine, node } = pair;
    db::macs::set(conn, machine.id, &[]).await?;
    let raw = json!({ "labels": node.labels, "annotations": node.annotations, "spec": spec });
    let document = Document::read(raw)?;
    let id = node.id.to_string();
    write::write(app, conn, actor, &id, Some(node.clone()), document).await?;
    db::matches::give_observations(conn, machine.id, node.id).await?;
    db::nodes::delete(conn, machine.id).await
}

/// Writes the finished operation, and an event for each of the two nodes.
async fn record_done(
    conn: &mut PgConnection,
    app: &App,
    actor: &Actor,
    pair: &Pair,
    macs: &[Mac],
    changes: &[String],
    reason: Option<&str>,
) -> Result<Effect, Error> {
    let Pair { machine, node } = pair;
    let now = app.clock.now();
    let because = reason
        .map(|reason| format!(": {reason}"))
        .unwrap_or_default();
    let operation = actor.operation(now, "match", node.id, changes.join(", "));
    db::operations::insert_done(conn, &operation).await?;
    let summary = format!("{} was matched with {}{because}", machine.name, node.name);
    for (kind, id) in [("node.matched", node.id), ("node.unregistered", machine.id)] {
        let event = actor
            .event(now, kind, Some(id), summary.clone())
            .under(Some(operation.id));
        let detail = json!({ "from": machine.id, "to": node.id, "macs": macs, "changes": changes });
        db::events::insert(conn, event.with(detail)).await?;
    }
    Ok(Effect::Begun(operation.id))
}

/// Matches a discovered machine with a declared node.
///
/// # Errors
/// 404, 409 naming each blocker, 412, 428.
pub(crate) async fn match_machine(
    app: &App,
    actor: &Actor,
    key: &str,
    idempotency: IdempotencyKey,
    preconditions: Preconditions,
    body: &MatchNode,
) -> Result<Answer, Error> {
    writing::once(app, actor, idempotency, body, async |conn| {
        let pair = Pair::lock(conn, actor, key, &body.to).await?;
        match dry_run::asked() {
            true => preconditions.allow_write(Some(pair.machine.generation))?,
            false => preconditions.allow_removal(pair.machine.generation)?,
        }
        let macs = db::matches::list_macs(conn, pair.machine.id).await?;
        let facts = db::facts::latest(conn, pair.machine.id)
            .await?
            .map(|seen| seen.facts.smbios);
        let replaces = body.replaces.as_deref();
        let spec = merge_spec(&pair.node.spec, &macs, replaces, facts.as_ref())?;
        let changes = pair.describe_changes(&spec);
        let blockers = pair.find_blockers();
        if dry_run::asked() {
            let plan = NodePlan {
                effect: Cost::None.to_string(),
                changes,
                blockers,
            };
            return Answer::ok(&plan).map(Effect::Told);
        }
        blockers::refuse(&blockers)?;
        bind(conn, app, actor, &pair, spec).await?;
        let reason = body.reason.as_deref();
        record_done(conn, app, actor, &pair, &macs, &changes, reason).await
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mac(last: u8) -> Mac {
        Mac([0x52, 0x54, 0, 0, 0, last])
    }

    fn macs(spec: &Value) -> Vec<(String, String)> {
        let macs = spec["macs"].as_array().unwrap().iter();
        macs.map(|mac| {
            (
                format_text(&mac["mac"])[15..].to_owned(),
                format_text(&mac["address"]),
            )
        })
        .collect()
    }

    #[test]
    fn the_machines_macs_take_the_places_of_those_that_are_named() {
        let one = json!({ "macs": [{ "mac": mac(1), "subnet": "prov", "address": "10.0.0.1" }] });
        let pair = |mac: &str, address: &str| (mac.to_owned(), address.to_owned());
        let after = |spec: &Value, seen: &[Mac], replaces: Option<&[Mac]>| {
            macs(&merge_spec(spec, seen, replaces, None).unwrap())
        };
        assert_eq!(after(&one, &[mac(9)], None), [pair("09", "10.0.0.1")]);
        assert_eq!(
            after(&one, &[mac(9), mac(8)], None),
            [pair("09", "10.0.0.1"), pair("08", "none")]
        );
        assert_eq!(
            after(&one, &[mac(9)], Some(&[])),
            [pair("01", "10.0.0.1"), pair("09", "none")]
        );
        let two = json!({ "macs": [{ "mac": mac(1), "subnet": "prov", "address": "10.0.0.1" }, { "mac": mac(2) }] });
        assert_eq!(
            after(&two, &[mac(9)], Some(&[mac(2)])),
            [pair("01", "10.0.0.1"), pair("09", "none")]
        );
        assert_eq!(
            after(&two, &[mac(9)], Some(&[mac(1), mac(2)])),
            [pair("09", "10.0.0.1")]
        );
        assert!(
            merge_spec(&two, &[mac(9)], None, None).is_err(),
            "which of them is for a person to say"
        );
        assert!(merge_spec(&two, &[mac(9)], Some(&[mac(3)]), None).is_err());
    }

    #[test]
    fn a_wrong_declaration_is_corrected_and_nothing_else_is_declared() {
        let seen = Smbios {
            serial: Some("S2".into()),
            uuid: Some("U2".into()),
            ..Smbios::default()
        };
        let declared = json!({ "macs": [{ "mac": mac(1) }], "serial": "S1" });
        let spec = merge_spec(&declared, &[mac(9)], None, Some(&seen)).unwrap();
        assert_eq!(
            (&spec["serial"], spec.get("smbios_uuid")),
            (&json!("S2"), None)
        );
    }
}
