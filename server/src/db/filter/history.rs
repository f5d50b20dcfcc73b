//! Lists of recorded history: parts, runs of gates, recoveries, breakers, deliveries.

use jiff::Timestamp;
use muster_core::parts::PartKind;

use super::sight::{NOWHERE, OF_NODE, Place};
use super::sort::{NEWEST_FIRST, OLDEST_FIRST, Sort};
use super::whitelist::{Field, by_id, keyword_field, one_of, unknown};
use super::{List, Term, WHOLE};
use crate::error::Error;

/// Newest first by default, oldest first on request.
const LATEST: [Sort; 2] = [NEWEST_FIRST, OLDEST_FIRST];

/// Parts with their present and former nodes. The part recorded latest is listed first.
pub const COMPONENTS: List = List {
    name: "components",
    sorts: &LATEST,
    parts: &[
        "id",
        "node",
        "kind",
        "serial",
        "slot",
        "model",
        "first_seen",
        "last_seen",
        "replaced_at",
        "replaced_by",
        "replaced_reason",
    ],
    from: "components c",
    id: "c.id",
    field: component_field,
    place: Place {
        joins: " JOIN nodes n ON n.id = c.node_id LEFT JOIN claims h ON h.node_id = n.id AND h.state <> 'released'",
        ..OF_NODE
    },
    ..WHOLE
};

fn component_field(term: &Term) -> Result<Field<'_>, Error> {
    match term.field.as_str() {
        "serial" => Ok(Field::Text("c.serial")),
        "kind" => keyword_field::<PartKind>(term, "c.kind", "a kind of part"),
        "model" => Ok(Field::Text("c.model")),
        "node" => Ok(Field::Node {
            column: "c.node_id",
        }),
        "replaced" => one_of(
            term,
            &["true", "false"],
            Field::Text("(c.replaced_at IS NOT NULL)::text"),
        ),
        other => Err(unknown(other, "serial, kind, model, node, replaced")),
    }
}

/// Runs of gates. The path of the request names the node.
pub const GATE_RUNS: List = List {
    name: "gate_runs",
    sorts: &LATEST,
    parts: &[
        "id",
        "node",
        "suite",
        "verdict",
        "fingerprint",
        "finished_at",
        "voided_at",
        "results",
    ],
    from: "gate_runs r",
    id: "r.id",
    field: gate_run,
    place: NOWHERE,
    ..WHOLE
};

fn gate_run(term: &Term) -> Result<Field<'_>, Error> {
    match term.field.as_str() {
        "node" => by_id(term, "r.node_id"),
        "suite" => Ok(Field::Text("r.suite")),
        "verdict" => one_of(term, &["pass", "fail", "unknown"], Field::Text("r.verdict")),
        "voided" => one_of(
            term,
            &["true", "false"],
            Field::Text("(r.voided_at IS NOT NULL)::text"),
        ),
        other => Err(unknown(other, "suite, verdict, voided")),
    }
}

/// Recoveries. The path of the request names the node.
pub const RECOVERIES: List = List {
    name: "recoveries",
    sorts: &LATEST,
    parts: &[
        "id",
        "node",
        "signature",
        "because",
        "asked",
        "rungs",
        "tried",
        "begun_at",
        "ended_at",
        "ended",
        "operation",
    ],
    from: "recoveries r",
    id: "r.id",
    field: recovery_field,
    place: NOWHERE,
    ..WHOLE
};

fn recovery_field(term: &Term) -> Result<Field<'_>, Error> {
    match term.field.as_str() {
        "node" => by_id(term, "r.node_id"),
        "signature" => Ok(Field::Text("r.signature")),
        "asked" => one_of(term, &["true", "false"], Field::Text("r.asked::text")),
        "ended" => one_of(
            term,
            &["recovered", "spent", "held_back", "stopped", "failed", "no"],
            Field::Text("COALESCE(r.ended, 'no')"),
        ),
        other => Err(unknown(other, "signature, asked, ended")),
    }
}

/// Returns the list of open and closed breakers, with their state at a time. For readers of the
/// whole fleet only.
pub fn breakers_at(now: Timestamp) -> List {
    List {
        name: "breakers",
        sorts: &LATEST,
        parts: &[
            "id",
            "signature",
            "because",
            "state",
            "opened_at",
            "closes_at",
            "closed_at",
            "closed_by",
        ],
        from: "breakers b",
        as_of: Some(now),
        id: "b.id",
        field: breaker_field,
        place: NOWHERE,
        ..WHOLE
    }
}

fn breaker_field(term: &Term) -> Result<Field<'_>, Error> {
    match term.field.as_str() {
        "signature" => Ok(Field::Text("b.signature")),
        "state" => one_of(
            term,
            &["open", "closed"],
            Field::AsOf(
                "CASE WHEN b.closed_at IS NOT NULL OR b.closes_at <= ",
                " THEN 'closed' ELSE 'open' END",
            ),
        ),
        other => Err(unknown(other, "signature, state")),
    }
}

/// Deliveries of one webhook, attempted and queued.
pub const DELIVERIES: List = List {
    name: "deliveries",
    sorts: &LATEST,
    parts: &[
        "id",
        "event",
        "seq",
        "kind",
        "reason",
        "state",
        "attempt",
        "at",
        "status",
        "error",
        "duration_ms",
    ],
    from: "webhook_deliveries d",
    id: "d.id",
    field: delivery_field,
    place: NOWHERE,
    ..WHOLE
};

fn delivery_field(term: &Term) -> Result<Field<'_>, Error> {
    match term.field.as_str() {
        "webhook" => by_id(term, "d.webhook_id"),
        "kind" => Ok(Field::Text("d.kind")),
        "state" => Ok(Field::Text("d.state")),
        "reason" => Ok(Field::Text("d.reason")),
        other => Err(unknown(other, "kind, state, reason")),
    }
}
