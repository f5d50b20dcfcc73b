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

/// A node with an address outside of networks.
#[derive(Clone, Debug)]
pub struct OutsideRow {
    pub name: String,
    /// The address of the BMC, if outside.
    pub bmc: Option<String>,
    /// The address of the console, if outside.
    pub console: Option<String>,
}

/// Lists the nodes of a site, or with a credential, that have an address outside of the networks,
/// ordered by name.
pub async fn list_nodes(
    conn: &mut PgConnection,
    place: ObjectId,
    limits: &Limits<'_>,
) -> Result<Vec<OutsideRow>, Error> {
    let texts = |networks: &[IpNet]| -> Vec<String> {
        networks.iter().map(|network| network.to_string()).collect()
    };
    let (bmc, console) = (texts(limits.bmc), texts(limits.console));
    Ok(sqlx::query_as!(
        OutsideRow,
        "SELECT name,
                CASE WHEN cardinality($2::text[]) > 0 AND NOT bmc_address <<= ANY ($2::text[]::inet[]) THEN host(bmc_address) END AS bmc,
                CASE WHEN cardinality($3::text[]) > 0 AND NOT console_address <<= ANY ($3::text[]::inet[]) THEN host(console_address) END AS console
         FROM nodes WHERE (site_id = $1 OR bmc_credential_id = $1)
             AND ((cardinality($2::text[]) > 0 AND NOT bmc_address <<= ANY ($2::text[]::inet[]))
                  OR (cardinality($3::text[]) > 0 AND NOT console_address <<= ANY ($3::text[]::inet[])))
         ORDER BY name",
        place as ObjectId,
        &bmc,
        &console,
    )
    .fetch_all(conn)
    .await?)
}
