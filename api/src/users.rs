//! People: who has signed in, and whom an administrator keeps out.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use crate::access::Role;

/// A person who has signed in, or a local administrator. Nobody is made here: an identity provider vouches for people, `muster admin password` makes a local one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct User {
    pub id: Uuid,
    /// As events tell it behind `user:`.
    pub name: String,
    /// The path of this object.
    #[serde(rename = "self")]
    pub link: String,
    /// Who vouches for them, and what they are called there; neither of a local one.
    pub issuer: Option<String>,
    pub subject: Option<String>,
    /// Their own role; bindings may give more.
    pub role: Role,
    /// As the identity provider said at the last login.
    pub groups: Vec<String>,
    pub created_at: Timestamp,
    /// In a browser, to the minute.
    pub last_seen: Option<Timestamp>,
    /// Since when they are kept out: they sign in no more, their sessions are over, and their tokens may nothing.
    pub disabled_at: Option<Timestamp>,
    pub disabled_by: Option<String>,
}
