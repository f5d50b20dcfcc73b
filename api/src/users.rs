//! People: sign-ins, and accounts disabled by an administrator.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use crate::access::Role;

/// A person with at least one sign-in, or a local administrator. Accounts cannot be created through
/// the API: the identity provider authenticates people, and `muster admin password` creates a local
/// administrator.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct User {
    pub id: Uuid,
    /// Name in events, after `user:`.
    pub name: String,
    /// The path of this object.
    #[serde(rename = "self")]
    pub link: String,
    /// Issuer and subject at the identity provider. Both absent for a local administrator.
    pub issuer: Option<String>,
    pub subject: Option<String>,
    /// Role of the person, without role bindings. Bindings may add permissions.
    pub role: Role,
    /// Groups reported by the identity provider at the latest login.
    pub groups: Vec<String>,
    pub created_at: Timestamp,
    /// Latest use in a browser, with a precision of one minute.
    pub last_seen: Option<Timestamp>,
    /// Time of disabling. A disabled person cannot sign in, sessions are ended, and the person's
    /// tokens lose all permissions.
    pub disabled_at: Option<Timestamp>,
    pub disabled_by: Option<String>,
}
