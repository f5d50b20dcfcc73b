//! Credentials: a credential in use keeps its purpose, and stays short enough for the BMCs.

use std::collections::BTreeMap;

use sqlx::PgConnection;

use super::refusal;
use crate::auth::Actor;
use crate::db;
use crate::db::nodes::PowerKind;
use crate::db::objects::ObjectRow;
use crate::error::Error;
use crate::http::declared::referrers::describe_referrers;
use crate::intents::nodes::resolve::{IPMI_USER_BYTES, describe_ipmi_user};

/// Rejects another purpose of a credential in use, and a user too long for IPMI.
///
/// # Errors
/// 409 naming the nodes or the other users; when the database fails.
pub(in crate::http::kinds) async fn keep_use(
    conn: &mut PgConnection,
    actor: &Actor,
    before: &ObjectRow,
    row: &ObjectRow,
) -> Result<(), Error> {
    let name = &row.name;
    let users = db::dependents::list_nodes_by_bmc_credential(conn, row.id).await?;
    // A document that was stored wrongly has no readable purpose; a repair is no change.
    if let Some(purpose) = before.spec["purpose"].as_str()
        && before.spec["purpose"] != row.spec["purpose"]
    {
        let broken: BTreeMap<String, String> = users
            .iter()
            .map(|user| (user.node.clone(), "login at the BMC".to_owned()))
            .collect();
        let rule = format!("The credential {name} with another purpose is wrong for");
        let advice = "Give each node another credential first, or declare another credential.";
        refusal::refuse(conn, actor, &broken, &rule, advice).await?;
        if let Some(referrers) = describe_referrers(conn, actor, row.id).await? {
            let detail = format!(
                "The credential {name} is used by {referrers}, so its purpose stays {purpose}: declare another credential."
            );
            return Err(Error::conflict("in_use", detail));
        }
    }
    let bytes = |row: &ObjectRow| row.spec["user"].as_str().map_or(0, str::len);
    if bytes(row) <= IPMI_USER_BYTES || bytes(before) > IPMI_USER_BYTES {
        return Ok(());
    }
    let broken: BTreeMap<String, String> = users
        .into_iter()
        .filter(|user| user.power == PowerKind::Ipmi)
        .map(|user| (user.node, "power by IPMI".to_owned()))
        .collect();
    let rule = format!("The user of the credential {name} is too long for");
    refusal::refuse(conn, actor, &broken, &rule, &describe_ipmi_user()).await
}
