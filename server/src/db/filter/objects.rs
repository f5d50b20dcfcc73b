//! Lists of declared objects.

use super::sight::Place;
use super::sort::BY_NAME;
use super::whitelist::{Field, unknown};
use super::{List, NODES, Term, WHOLE};
use crate::error::Error;

/// Returns the list of a kind's objects. Each kind has few objects.
pub fn objects_of(kind: &'static str) -> List {
    List {
        name: kind,
        sorts: &BY_NAME,
        parts: NODES.parts,
        from: "objects o",
        kind: Some(kind),
        id: "o.id",
        by_name: "o.name",
        field,
        place: PLACE,
        ..WHOLE
    }
}

/// A site, rack or pool is its own place. Other objects have the site named in `/spec/site`, or
/// else the site of the cluster named in `/spec/cluster`.
pub(super) const PLACE: Place = Place {
    joins: " LEFT JOIN object_refs rs ON rs.from_id = o.id AND rs.pointer = '/spec/site'
             LEFT JOIN object_refs rc ON rc.from_id = o.id AND rc.pointer = '/spec/cluster'
             LEFT JOIN object_refs rcs ON rcs.from_id = rc.to_id AND rcs.pointer = '/spec/site'",
    site: "CASE o.kind WHEN 'site' THEN o.id ELSE COALESCE(rs.to_id, rcs.to_id) END",
    rack: "CASE o.kind WHEN 'rack' THEN o.id END",
    pool: "CASE o.kind WHEN 'pool' THEN o.id END",
    labels: "o.labels",
};

fn field(term: &Term) -> Result<Field<'_>, Error> {
    match (term.field.as_str(), term.field.strip_prefix("label.")) {
        ("name", _) => Ok(Field::Text("o.name")),
        (_, Some(label)) => Ok(Field::Label {
            column: "o.labels",
            label,
        }),
        (other, None) => Err(unknown(other, "name, label.NAME")),
    }
}
