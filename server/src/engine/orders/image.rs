//! The order to write the image to the root disk.

use anyhow::{Context, Error};
use muster_core::images::ImageManifest;
use muster_core::wire::job::JobSpec;
use muster_core::wire::node::{SignedImage, WriteImage};
use sqlx::PgConnection;

use super::sources::{Sources, SubnetDocument, boot_url, find_facts, operation, permit};
use super::{logins, network, stack};
use crate::db;
use crate::engine::compatibility::Onto;
use crate::engine::signatures;
use crate::keys::rings::ca_line;

/// Builds the order. A stack that breaks the rules is rejected before the disk is written.
pub(super) async fn order(
    conn: &mut PgConnection,
    s: &Sources<'_>,
    subnet: &SubnetDocument,
) -> anyhow::Result<JobSpec> {
    stack::allow(conn, s, Onto::Image).await?;
    Ok(JobSpec::WriteImage {
        login: logins::need_live(conn, s).await?,
        plan: plan(conn, s, subnet).await?,
    })
}

async fn plan(
    conn: &mut PgConnection,
    s: &Sources<'_>,
    subnet: &SubnetDocument,
) -> anyhow::Result<WriteImage> {
    let image = s.node.need_image().map_err(Error::msg)?;
    let profile = s
        .node
        .profile
        .as_ref()
        .context("the node has no hardware profile")?;
    let facts = find_facts(conn, s).await?;
    Ok(WriteImage {
        permit: permit(s)?,
        operation: operation(s)?,
        claim: s.node.claim.context("the node is not claimed")?,
        disk_serial: profile.root_disk(&facts)?.to_owned(),
        url: boot_url(s, &format!("blob/sha256/{}", image.digest.hex())),
        digest: image.digest,
        size: image.size,
        raw_digest: image.raw_digest,
        raw_size: image.raw_size,
        esp_partition: image.partitions.esp,
        root_partition: image.partitions.root,
        hostname: s.node.name.clone(),
        network: network::build(conn, s, subnet, &facts).await?,
        // The present CA alone: the live image reads a single line. The converge after the image
        // adds the new CA of a rotation.
        user_ca: ca_line(&s.keys.open_user_cas(conn).await?.current)?,
        // The new system gets the epoch of this job, independent of the system now on the disk.
        principal: logins::installed_principal(s, s.row.epoch),
        signed_image: find_signature(conn, s, image).await?,
    })
}

/// Returns the signature of the image for a pool with `require_signature`.
async fn find_signature(
    conn: &mut PgConnection,
    s: &Sources<'_>,
    image: &ImageManifest,
) -> anyhow::Result<Option<SignedImage>> {
    let Some(pool) = db::signing_keys::find_pool(conn, s.node.id).await? else {
        return Ok(None);
    };
    Ok(signatures::need_proof(conn, pool, image, s.now).await?)
}
