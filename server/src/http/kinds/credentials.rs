//! Credentials. The secret is sealed at the write and never returned.

use muster_api::credentials::{CredentialPurpose, CredentialSpec, CredentialStatus};
use muster_core::values::Secret;
use sqlx::PgConnection;

use super::dependents;
use crate::app::App;
use crate::auth::Actor;
use crate::db::objects::ObjectRow;
use crate::document::fault;
use crate::error::{Error, Fault};
use crate::http::declared::Declared;
use crate::http::kinds::{calls, networks};

/// The longest secret, in bytes. A munge key has 1 KiB and a TLS key 4 KiB.
const LONGEST: usize = 64 << 10;

impl Declared for CredentialSpec {
    const HAS_SECRET: bool = true;

    fn faults(&self) -> Vec<Fault> {
        let mut faults = Vec::new();
        if self.purpose == CredentialPurpose::Bmc && self.user.as_deref().is_none_or(str::is_empty)
        {
            faults.push(fault(
                "/spec/user",
                "required",
                "A BMC's credential names its account.",
            ));
        }
        if self
            .secret
            .as_ref()
            .is_some_and(|secret| !(1..=LONGEST).contains(&secret.reveal().len()))
        {
            faults.push(fault(
                "/spec/secret",
                "out_of_range",
                format!("1 to {LONGEST} bytes"),
            ));
        }
        if self.purpose != CredentialPurpose::Bmc && !self.networks.is_empty() {
            faults.push(fault(
                "/spec/networks",
                "not_of_purpose",
                "Only a BMC's credential names networks; leave `networks` out.",
            ));
        }
        faults.extend(networks::list_faults("/spec/networks", &self.networks));
        faults
    }

    fn secret(&self) -> Option<&Secret> {
        self.secret.as_ref()
    }

    async fn allow_dependents(
        conn: &mut PgConnection,
        actor: &Actor,
        before: Option<&ObjectRow>,
        row: &ObjectRow,
    ) -> Result<(), Error> {
        networks::check_credential(conn, actor, before, row).await?;
        match before {
            Some(before) => dependents::credentials::keep_use(conn, actor, before, row).await,
            None => Ok(()),
        }
    }

    async fn status(
        app: &App,
        conn: &mut PgConnection,
        row: &ObjectRow,
    ) -> Result<CredentialStatus, Error> {
        let hash = calls::hash_secret(app, conn, row.id).await?;
        Ok(CredentialStatus {
            set: hash.is_some(),
            secret_hash: hash,
        })
    }
}
