//! Sites.

use muster_api::sites::SiteSpec;

use crate::http::declared::Declared;

impl Declared for SiteSpec {}
