//! Lists of agents, of tokens and of people.

use jiff::Timestamp;

use super::sight::{NOWHERE, Place};
use super::sort::{NAME_DOWN, NAME_UP, NEWEST_FIRST, OLDEST_FIRST};
use super::whitelist::{Field, by_id, keyword_field, one_of, unknown};
use super::{List, Term, WHOLE};
use crate::error::Error;

/// All agents. The `site` field compares the site's id.
pub const AGENTS: List = List {
    name: "agents",
    sorts: &[NAME_UP, NAME_DOWN, OLDEST_FIRST, NEWEST_FIRST],
    parts: &[
        "id",
        "name",
        "site",
        "version",
        "last_seen",
        "clock_offset_ms",
        "certified_until",
        "generation",
    ],
    from: "agents a",
    id: "a.id",
    by_name: "a.name",
    field: agent_field,
    place: Place {
        site: "a.site_id",
        ..NOWHERE
    },
    ..WHOLE
};

fn agent_field(term: &Term) -> Result<Field<'_>, Error> {
    match term.field.as_str() {
        "name" => Ok(Field::Text("a.name")),
        "version" => Ok(Field::Text("a.version")),
        "site" => by_id(term, "a.site_id"),
        other => Err(unknown(other, "name, version")),
    }
}

/// Returns the list of all tokens, with their state at a time.
pub fn tokens_at(now: Timestamp) -> List {
    List {
        name: "tokens",
        sorts: &[NAME_UP, NAME_DOWN, OLDEST_FIRST, NEWEST_FIRST],
        parts: &[
            "id",
            "name",
            "role",
            "scope",
            "created_at",
            "expires_at",
            "last_used",
            "revoked_at",
            "releases_per_hour",
            "made_by",
            "generation",
        ],
        from: "tokens t",
        as_of: Some(now),
        id: "t.id",
        by_name: "t.name",
        field: token_field,
        place: NOWHERE,
        ..WHOLE
    }
}

fn token_field(term: &Term) -> Result<Field<'_>, Error> {
    match term.field.as_str() {
        "name" => Ok(Field::Text("t.name")),
        "role" => keyword_field::<muster_api::tokens::Role>(term, "t.role", "a role"),
        "person" => Ok(Field::Text("t.person")),
        "state" => one_of(
            term,
            &["valid", "over", "revoked"],
            Field::AsOf(
                "CASE WHEN t.revoked_at IS NOT NULL THEN 'revoked' WHEN t.expires_at <= ",
                " THEN 'over' ELSE 'valid' END",
            ),
        ),
        other => Err(unknown(other, "name, role, person, state")),
    }
}

/// All people.
pub const USERS: List = List {
    name: "users",
    sorts: &[NAME_UP, NAME_DOWN, OLDEST_FIRST, NEWEST_FIRST],
    parts: &[
        "id",
        "name",
        "self",
        "issuer",
        "subject",
        "role",
        "groups",
        "created_at",
        "last_seen",
        "disabled_at",
        "disabled_by",
    ],
    from: "users u",
    id: "u.id",
    by_name: "u.name",
    field: user_field,
    place: NOWHERE,
    ..WHOLE
};

fn user_field(term: &Term) -> Result<Field<'_>, Error> {
    match term.field.as_str() {
        "name" => Ok(Field::Text("u.name")),
        "role" => keyword_field::<muster_api::tokens::Role>(term, "u.role", "a role"),
        "issuer" => Ok(Field::Text("u.issuer")),
        "disabled" => one_of(
            term,
            &["true", "false"],
            Field::Text("(u.disabled_at IS NOT NULL)::text"),
        ),
        other => Err(unknown(other, "name, role, issuer, disabled")),
    }
}
