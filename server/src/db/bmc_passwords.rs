//! BMC passwords chosen by Muster: the current password of an account and, during a change, the
//! next password. Rows are keyed by account and not by node, because several systems can share a
//! BMC.

use std::fmt;
use std::net::IpAddr;

use jiff::Timestamp;
use jiff_sqlx::ToSqlx as _;
use muster_core::ids::NodeId;
use sqlx::PgConnection;
use sqlx::types::ipnet::IpNet;

use crate::error::Error;
use crate::sealed::Sealed;

/// An account of a BMC.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    pub address: IpAddr,
    pub port: i32,
    pub user: String,
}

impl fmt::Display for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}:{}", self.user, self.address, self.port)
    }
}

impl Account {
    /// Returns the place of the account's passwords, for both the current and the next password.
    /// The place is bound into the ciphertext.
    pub fn place(&self) -> String {
        format!("bmc_passwords/{self}")
    }
}

/// The stored passwords of an account.
#[derive(Clone, Debug)]
pub struct PasswordRow {
    /// SHA-256 of the credential's ciphertext at the time the current password was chosen.
    pub based_on: Vec<u8>,
    pub current: Sealed,
    /// The next password, stored before the first attempt to set it on the BMC.
    pub next: Option<Sealed>,
}

/// Returns the passwords of an account. `None`: the account uses the password of its credential.
pub async fn find(
    conn: &mut PgConnection,
    account: &Account,
) -> Result<Option<PasswordRow>, Error> {
    let row = sqlx::query!(
        "SELECT based_on, key_id, wrapped_key, ciphertext, next_key_id, next_wrapped_key, next_ciphertext
         FROM bmc_passwords WHERE address = $1 AND port = $2 AND user_name = $3",
        IpNet::from(account.address),
        account.port,
        account.user,
    )
    .fetch_optional(conn)
    .await?;
    Ok(row.map(|row| {
        let next = row
            .next_key_id
            .zip(row.next_wrapped_key)
            .zip(row.next_ciphertext);
        PasswordRow {
            based_on: row.based_on,
            current: Sealed {
                key_id: row.key_id,
                wrapped_key: row.wrapped_key,
                ciphertext: row.ciphertext,
            },
            next: next.map(|((key_id, wrapped_key), ciphertext)| Sealed {
                key_id,
                wrapped_key,
                ciphertext,
            }),
        }
    }))
}

/// The passwords of an account before a change.
#[derive(Clone, Copy, Debug)]
pub struct Prepared<'sealed> {
    /// SHA-256 of the credential's ciphertext.
    pub based_on: &'sealed [u8],
    pub current: &'sealed Sealed,
    /// The next password, used if none is stored yet.
    pub fresh: &'sealed Sealed,
}

/// Stores the current and next password of an account before the next password is sent anywhere.
/// Returns the stored next password: an earlier one is kept and returned instead of `fresh`.
pub async fn prepare(
    conn: &mut PgConnection,
    account: &Account,
    prepared: Prepared<'_>,
    now: Timestamp,
) -> Result<Sealed, Error> {
    let Prepared {
        based_on,
        current,
        fresh,
    } = prepared;
    Ok(sqlx::query_as!(
        Sealed,
        r#"INSERT INTO bmc_passwords AS p (address, port, user_name, based_on, key_id, wrapped_key, ciphertext, next_based_on, next_key_id,
                                           next_wrapped_key, next_ciphertext, next_at)
           VALUES ($1, $2, $3, $4, $5, $6, $7, $4, $8, $9, $10, $11)
           ON CONFLICT (address, port, user_name) DO UPDATE SET next_based_on = $4,
               next_key_id = COALESCE(p.next_key_id, $8), next_wrapped_key = COALESCE(p.next_wrapped_key, $9),
               next_ciphertext = COALESCE(p.next_ciphertext, $10), next_at = COALESCE(p.next_at, $11)
           RETURNING next_key_id AS "key_id!", next_wrapped_key AS "wrapped_key!", next_ciphertext AS "ciphertext!""#,
        IpNet::from(account.address),
        account.port,
        account.user,
        based_on,
        current.key_id,
        current.wrapped_key,
        current.ciphertext,
        fresh.key_id,
        fresh.wrapped_key,
        fresh.ciphertext,
        now.to_sqlx() as _,
    )
    .fetch_one(conn)
    .await?)
}

/// Makes the next password the current one, after the BMC accepted it. `false`: no next password is
/// stored, or a former call already promoted the password.
pub async fn promote(
    conn: &mut PgConnection,
    account: &Account,
    now: Timestamp,
) -> Result<bool, Error> {
    let done = sqlx::query!(
        "UPDATE bmc_passwords SET based_on = next_based_on, key_id = next_key_id, wrapped_key = next_wrapped_key, ciphertext = next_ciphertext,
                next_based_on = NULL, next_key_id = NULL, next_wrapped_key = NULL, next_ciphertext = NULL, next_at = NULL, changed_at = $4
         WHERE address = $1 AND port = $2 AND user_name = $3 AND next_ciphertext IS NOT NULL",
        IpNet::from(account.address),
        account.port,
        account.user,
        now.to_sqlx() as _,
    )
    .execute(conn)
    .await?;
    Ok(done.rows_affected() == 1)
}

/// Returns the account used to log in to a node's BMC.
pub async fn find_account(conn: &mut PgConnection, node: NodeId) -> Result<Option<Account>, Error> {
    let row = sqlx::query!(
        r#"SELECT n.bmc_address AS "address!: IpNet", n.bmc_port, c.spec ->> 'user' AS "user!"
           FROM nodes n JOIN objects c ON c.id = n.bmc_credential_id WHERE n.id = $1 AND n.bmc_address IS NOT NULL"#,
        node as NodeId,
    )
    .fetch_optional(conn)
    .await?;
    Ok(row.map(|row| Account {
        address: row.address.addr(),
        port: row.bmc_port,
        user: row.user,
    }))
}
