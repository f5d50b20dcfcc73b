//! Lists of requests for approval by a second person.

use jiff::Timestamp;

use super::sight::Place;
use super::sort::{NEWEST_FIRST, OLDEST_FIRST};
use super::whitelist::{Field, one_of, unknown};
use super::{List, Term, WHOLE};
use crate::error::Error;

/// Returns the list of requests open for a decision at a time.
pub fn approvals_at(now: Timestamp) -> List {
    List {
        name: "approvals",
        sorts: &[OLDEST_FIRST, NEWEST_FIRST],
        parts: &[
            "id",
            "claim",
            "node",
            "action",
            "waiver",
            "because",
            "reason",
            "requested_by",
            "requested_at",
            "expires_at",
            "state",
            "decided_by",
            "operation",
        ],
        from: "approvals a LEFT JOIN claims c ON c.id = a.claim_id LEFT JOIN waivers w ON w.id = a.waiver_id",
        // A claim under release may still have a request for immediate erasure.
        only: "a.state = 'open' AND (c.state = 'bound' OR w.state = 'asked' OR a.node_id IS NOT NULL
               OR (c.state = 'releasing' AND c.undo_until IS NOT NULL AND a.erase_now AND NOT a.replaces))",
        as_of: Some(now),
        until: Some("a.expires_at"),
        id: "a.id",
        field,
        place: PLACE,
        ..WHOLE
    }
}

/// The place of the node, or of the rack or pool for a waiver of a rack or pool.
const PLACE: Place = Place {
    joins: " LEFT JOIN nodes n ON n.id = COALESCE(c.node_id, w.node_id, a.node_id)
             LEFT JOIN claims h ON h.node_id = n.id AND h.state <> 'released'
             LEFT JOIN objects o ON o.id = COALESCE(w.rack_id, w.pool_id)
             LEFT JOIN object_refs rs ON rs.from_id = o.id AND rs.pointer = '/spec/site'
             LEFT JOIN object_refs rc ON rc.from_id = o.id AND rc.pointer = '/spec/cluster'
             LEFT JOIN object_refs rcs ON rcs.from_id = rc.to_id AND rcs.pointer = '/spec/site'",
    site: "COALESCE(n.site_id, rs.to_id, rcs.to_id)",
    rack: "COALESCE(n.rack_id, w.rack_id)",
    pool: "COALESCE(c.pool_id, h.pool_id, w.pool_id)",
    labels: "COALESCE(n.labels, o.labels)",
};

fn field(term: &Term) -> Result<Field<'_>, Error> {
    match term.field.as_str() {
        "node" => Ok(Field::Node {
            column: "COALESCE(c.node_id, w.node_id, a.node_id)",
        }),
        "claim" => Ok(Field::Text("c.name")),
        "requested_by" => Ok(Field::Text("a.requested_by")),
        "action" => one_of(
            term,
            &["release", "waive", "wipe", "reinstall"],
            Field::Text(
                "CASE WHEN a.claim_id IS NOT NULL THEN 'release' WHEN a.waiver_id IS NOT NULL THEN 'waive' ELSE a.wish END",
            ),
        ),
        other => Err(unknown(other, "node, claim, action, requested_by")),
    }
}
