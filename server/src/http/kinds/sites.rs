//! Sites.

use muster_api::sites::SiteSpec;
use muster_api::tokens::Role;

use crate::http::declared::Declared;

impl Declared for SiteSpec {
    const WRITER: Role = Role::Admin;
}
