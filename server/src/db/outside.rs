//! Nodes with the address of a BMC or console outside of declared networks.

use muster_core::ids::ObjectId;
use sqlx::PgConnection;
use sqlx::types::ipnet::IpNet;

use crate::error::Error;

/// Declared networks. An empty list limits no address.
#[derive(Clone, Copy, Debug)]
pub struct Limits<'a> {
    pub bmc: &'a [IpNet],
    pub console: &'a [IpNet],
}

/// Lists at most `limit` nodes of a site, or with a credential, that have an address outside of the
/// networks, ordered by name.
pub async fn list_nodes(
    conn: &mut PgConnection,
    place: ObjectId,
    limits: &Limits<'_>,
    limit: i64,
) -> Result<Vec<String>, Error> {
    let texts = |networks: &[IpNet]| -> Vec<String> {
        networks.iter().map(|network| network.to_string()).collect()
    };
    let (bmc, console) = (texts(limits.bmc), texts(limits.console));
    Ok(sqlx::query_scalar!(
        "SELECT name FROM nodes WHERE (site_id = $1 OR bmc_credential_id = $1)
             AND ((cardinality($2::text[]) > 0 AND NOT bmc_address <<= ANY ($2::text[]::inet[]))
                  OR (cardinality($3::text[]) > 0 AND NOT console_address <<= ANY ($3::text[]::inet[])))
         ORDER BY name LIMIT $4",
        place as ObjectId,
        &bmc,
        &console,
        limit,
    )
    .fetch_all(conn)
    .await?)
}
