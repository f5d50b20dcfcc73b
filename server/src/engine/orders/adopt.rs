//! The first login to a running machine, by a credential given for the login alone.

use anyhow::Context;
use muster_core::values::{Digest, Secret};
use muster_core::wire::PROTOCOL;
use muster_core::wire::adopt::Adopt;
use muster_core::wire::node::Marker;
use sqlx::PgConnection;

use super::bmc::secret_place;
use super::certificates::certify_adopted;
use super::logins::{SSH_PORT, principal};
use super::sources::Sources;
use crate::db;
use crate::keys::rings::bare_line;

/// Comment of the line in authorized_keys. The next adoption finds and replaces the line.
const COMMENT: &str = "muster-adopted";

pub(super) async fn order(conn: &mut PgConnection, s: &Sources<'_>) -> anyhow::Result<Adopt> {
    let adoption = db::adoptions::find(conn, s.node.id)
        .await?
        .context("the adoption was never requested")?;
    let sealed = db::keys::find_secret(conn, adoption.credential)
        .await?
        .context("the credential has no secret")?;
    let secret = s
        .keys
        .master
        .open(&secret_place(adoption.credential), &sealed)?;
    let cas = s.keys.open_user_cas(conn).await?;
    let key = bare_line(cas.newest())?;
    let principal = principal(s);
    Ok(Adopt {
        address: s.wiring.address,
        port: SSH_PORT,
        host_key: adoption.host_key,
        user: "root".into(),
        secret: Secret::new(String::from_utf8(secret).context("the credential is not UTF-8")?),
        trust: format!("cert-authority,principals=\"{principal}\" {key} {COMMENT}"),
        marker: Marker {
            protocol: PROTOCOL,
            node: s.node.id,
            claim: adoption.claim,
            epoch: s.node.epoch,
            // Another party installed the machine, so the image is unknown.
            image: Digest([0; 32]),
        },
        user_key: certify_adopted(conn, s, &principal, cas.newest()).await?,
    })
}
