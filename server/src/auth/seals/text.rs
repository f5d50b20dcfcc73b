//! The sealed members of a row: all that decide rights. The texts are stored as seals: a version
//! with another text for the same row would refuse every stored row, and lock everybody out. Such a
//! version checks the former text too, and seals the row again. The same holds for a migration that
//! changes a sealed member.

use jiff::Timestamp;
use muster_api::access::Scope;
use muster_core::ids::UserId;
use serde_json::json;

use crate::db::role_bindings::BindingRow;
use crate::db::tokens::TokenRow;
use crate::db::users::UserRow;
use crate::keys::MasterKey;

/// Returns the seal over a token.
pub(super) fn seal_token(master: &MasterKey, row: &TokenRow) -> Vec<u8> {
    master.rows.seal(&token(row))
}

/// Returns the seal over the hash of a token stored as a plain hash. A keyed hash needs no seal.
pub(super) fn seal_plain(master: &MasterKey, row: &TokenRow) -> Option<Vec<u8>> {
    row.key_id
        .is_none()
        .then(|| master.rows.seal(&plain_hash(row)))
}

/// Returns whether the seals of a token are valid.
pub fn token_fits(master: &MasterKey, row: &TokenRow) -> bool {
    master.rows.fits(&token(row), row.seal.as_deref())
        && (row.key_id.is_some()
            || master
                .rows
                .fits(&plain_hash(row), row.plain_seal.as_deref()))
}

/// Returns the seal over a person.
pub(super) fn seal_user(master: &MasterKey, row: &UserRow) -> Vec<u8> {
    master.rows.seal(&user(row))
}

/// Returns whether the seal of a person is valid.
pub fn user_fits(master: &MasterKey, row: &UserRow) -> bool {
    master.rows.fits(&user(row), row.seal.as_deref())
}

/// Returns the seal over a role binding.
pub(super) fn seal_binding(master: &MasterKey, row: &BindingRow) -> Vec<u8> {
    master.rows.seal(&binding(row))
}

/// Returns whether the seal of a role binding is valid.
pub(super) fn binding_fits(master: &MasterKey, row: &BindingRow) -> bool {
    master.rows.fits(&binding(row), row.seal.as_deref())
}

/// Returns the seal over a session.
pub fn seal_session(
    master: &MasterKey,
    hash: &[u8],
    user: UserId,
    expires_at: Timestamp,
) -> Vec<u8> {
    master.rows.seal(&session(hash, user, expires_at))
}

/// Returns whether a session's seal is valid.
pub(super) fn session_fits(
    master: &MasterKey,
    text: &SessionText<'_>,
    stored: Option<&[u8]>,
) -> bool {
    let SessionText {
        hash,
        user,
        expires_at,
    } = *text;
    master.rows.fits(&session(hash, user, expires_at), stored)
}

/// Returns whether a token has valid seals of a former master key.
pub(super) fn has_former_token(master: &MasterKey, row: &TokenRow) -> bool {
    let newest = master.rows.is_newest(&token(row), row.seal.as_deref())
        && (row.key_id.is_some()
            || master
                .rows
                .is_newest(&plain_hash(row), row.plain_seal.as_deref()));
    token_fits(master, row) && !newest
}

/// Returns whether a person has a valid seal of a former master key.
pub(super) fn has_former_user(master: &MasterKey, row: &UserRow) -> bool {
    user_fits(master, row) && !master.rows.is_newest(&user(row), row.seal.as_deref())
}

/// Returns whether a role binding has a valid seal of a former master key.
pub(super) fn has_former_binding(master: &MasterKey, row: &BindingRow) -> bool {
    binding_fits(master, row) && !master.rows.is_newest(&binding(row), row.seal.as_deref())
}

/// Returns whether a session has a valid seal of a former master key.
pub(super) fn has_former_session(
    master: &MasterKey,
    text: &SessionText<'_>,
    stored: Option<&[u8]>,
) -> bool {
    let SessionText {
        hash,
        user,
        expires_at,
    } = *text;
    let newest = master
        .rows
        .is_newest(&session(hash, user, expires_at), stored);
    session_fits(master, text, stored) && !newest
}

/// The sealed members of a session.
#[derive(Clone, Copy, Debug)]
pub(super) struct SessionText<'a> {
    pub(super) hash: &'a [u8],
    pub(super) user: UserId,
    pub(super) expires_at: Timestamp,
}

fn token(row: &TokenRow) -> String {
    // Each member of the scope by name: a new member does not compile without a decision here.
    let Scope {
        site,
        rack,
        pool,
        labels,
    } = &row.scope.0;
    let times = [
        row.created_at.as_microsecond(),
        row.expires_at.as_microsecond(),
    ];
    json!([
        "token",
        row.id,
        row.name,
        row.role.as_str(),
        times,
        row.person,
        row.releases_per_hour,
        [site, rack, pool, labels],
        row.made_by,
        row.keeps_lost_verbs,
        row.keeps_unarmed,
    ])
    .to_string()
}

fn plain_hash(row: &TokenRow) -> String {
    json!(["plain token", row.id, hex::encode(&row.token_hash)]).to_string()
}

fn user(row: &UserRow) -> String {
    json!([
        "user",
        row.id,
        row.name,
        row.password_hash,
        row.role.as_str(),
        row.groups,
        row.issuer,
        row.subject,
        row.disabled,
        row.keeps_lost_verbs,
    ])
    .to_string()
}

fn binding(row: &BindingRow) -> String {
    json!([
        "role_binding",
        row.id,
        row.subject,
        row.role,
        row.scope,
        row.keeps_lost_verbs,
    ])
    .to_string()
}

fn session(hash: &[u8], user: UserId, expires_at: Timestamp) -> String {
    let end = expires_at.as_microsecond();
    json!(["session", hex::encode(hash), user, end]).to_string()
}

#[cfg(test)]
mod tests {
    use muster_api::access::Role;
    use muster_core::ids::{ObjectId, TokenId};
    use sqlx::types::Json;
    use uuid::Uuid;

    use super::*;

    const ID: Uuid = Uuid::from_u128(1);

    fn scope() -> Scope {
        Scope {
            site: Some("lab".to_owned()),
            labels: [("team".to_owned(), "a".to_owned())].into(),
            ..Scope::default()
        }
    }

    /// A failure locks out every token, person and binding that an earlier version has sealed.
    #[test]
    fn the_texts_are_those_of_every_version() {
        let id = ID.to_string();
        let token_row = TokenRow {
            id: TokenId(ID),
            name: "ci".to_owned(),
            token_hash: vec![1, 255],
            key_id: None,
            role: Role::Viewer,
            created_at: Timestamp::UNIX_EPOCH,
            expires_at: Timestamp::constant(1, 999),
            last_used: None,
            revoked_at: None,
            person: Some("user:ada".to_owned()),
            releases_per_hour: Some(5),
            scope: Json(scope()),
            made_by: None,
            keeps_lost_verbs: false,
            keeps_unarmed: true,
            seal: None,
            plain_seal: None,
        };
        let text = r#"["token","ID","ci","viewer",[0,1000000],"user:ada",5,["lab",null,null,{"team":"a"}],null,false,true]"#;
        assert_eq!(token(&token_row), text.replace("ID", &id));
        let text = r#"["plain token","ID","01ff"]"#;
        assert_eq!(plain_hash(&token_row), text.replace("ID", &id));
        let user_row = UserRow {
            id: UserId(ID),
            name: "ada".to_owned(),
            password_hash: Some("hash".to_owned()),
            role: Role::Admin,
            groups: vec!["infra".to_owned()],
            disabled: false,
            last_seen: None,
            keeps_lost_verbs: true,
            vouched_at: Timestamp::UNIX_EPOCH,
            issuer: None,
            subject: None,
            seal: None,
        };
        let text = r#"["user","ID","ada","hash","admin",["infra"],null,null,false,true]"#;
        assert_eq!(user(&user_row), text.replace("ID", &id));
        let binding_row = BindingRow {
            id: ObjectId(ID),
            name: "infra".to_owned(),
            subject: "group:infra".to_owned(),
            role: "viewer".to_owned(),
            scope: "{}".to_owned(),
            keeps_lost_verbs: false,
            seal: None,
        };
        let text = r#"["role_binding","ID","group:infra","viewer","{}",false]"#;
        assert_eq!(binding(&binding_row), text.replace("ID", &id));
        let text = r#"["session","01ff","ID",1000000]"#;
        let session = session(&[1, 255], UserId(ID), Timestamp::constant(1, 0));
        assert_eq!(session, text.replace("ID", &id));
    }
}
