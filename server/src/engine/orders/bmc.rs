//! Access of an order to a BMC, and the rotation of the BMC's password. The new password is stored,
//! sealed, before an agent receives the password. The old password is kept until the BMC was
//! observed to accept the new password.

use std::net::IpAddr;

use crate::db::nodes::PowerKind;
use anyhow::{Context, anyhow, bail, ensure};
use ipnet::IpNet;
use muster_core::facts::Firmware;
use muster_core::ids::ObjectId;
use muster_core::out_of_band::{intersect, is_inside, list_networks, may_connect};
use muster_core::values::{Digest, Secret};
use muster_core::wire::bmc::{BmcTarget, IpmiTarget, Machine, Power, RotateBmc};
use rand::seq::{IndexedRandom as _, SliceRandom as _};
use sqlx::PgConnection;

use super::sources::Sources;
use crate::db;
use crate::db::bmc_passwords::{Account, Prepared};
use crate::document;
use crate::keys::MasterKey;
use crate::sealed::Sealed;

/// Length of a password in characters: the limit of the oldest IPMI (2.0, section 22.30), with
/// about 95 bits of entropy.
const LENGTH: usize = 16;
/// A password has at least one character of each class, because some BMCs require all classes. No
/// character has a special meaning on a command line.
const CLASSES: [&[u8]; 4] = [
    b"ABCDEFGHJKLMNPQRSTUVWXYZ",
    b"abcdefghijkmnopqrstuvwxyz",
    b"23456789",
    b"-_.",
];

/// The passwords of a BMC account.
struct Passwords {
    account: Account,
    /// The current password, as far as known.
    current: Secret,
    /// A password already sent to the BMC, and possibly accepted.
    next: Option<Secret>,
    /// The password last accepted by the BMC, kept after a person changed the credential. The
    /// person's password is tried first.
    kept: Option<Secret>,
    /// The networks that the passwords may go to. Empty: neither the site nor the credential names
    /// any.
    networks: Vec<IpNet>,
    /// SHA-256 of the credential's ciphertext. A changed credential has another hash.
    based_on: Vec<u8>,
}

/// Returns the power control of a node: the BMC with passwords, or a person.
pub(super) async fn resolve_power(
    conn: &mut PgConnection,
    s: &Sources<'_>,
) -> anyhow::Result<Power> {
    if s.node.bmc_address.is_none() || s.node.bmc_credential.is_none() {
        let person = s
            .node
            .power_person
            .clone()
            .context("the node has neither a BMC nor a person")?;
        return Ok(Power::Manual { person });
    }
    let known = load_passwords(conn, s).await?;
    let also = known.next.or(known.kept);
    build_power(s, known.account.user, known.current, also, known.networks)
}

/// Builds the order for a new BMC password. A repeated call returns the same password until the BMC
/// was observed to accept the password.
pub(super) async fn rotate(conn: &mut PgConnection, s: &Sources<'_>) -> anyhow::Result<RotateBmc> {
    ensure!(
        s.node.bmc_address.is_some(),
        "{} has no BMC: there is no password to change",
        s.node.name
    );
    let Passwords {
        account,
        current,
        next: sent,
        kept,
        networks,
        based_on,
    } = load_passwords(conn, s).await?;
    let (master, place) = (&s.keys.master, account.place());
    let fresh = master.seal(&place, generate_password().reveal().as_bytes())?;
    // The current password is also stored in the row, so a later change of the credential cannot
    // lose the password.
    let before = master.seal(&place, current.reveal().as_bytes())?;
    let prepared = Prepared {
        based_on: &based_on,
        current: &before,
        fresh: &fresh,
    };
    let next = db::bmc_passwords::prepare(conn, &account, prepared, s.now).await?;
    let next = open_password(master, &place, &next)?;
    Ok(RotateBmc {
        power: build_power(s, account.user, current, kept, networks)?,
        next,
        tried: sent.is_some(),
    })
}

async fn load_passwords(conn: &mut PgConnection, s: &Sources<'_>) -> anyhow::Result<Passwords> {
    let address = s.node.bmc_address.context("the node has no BMC")?;
    let credential = s
        .node
        .bmc_credential
        .context("the node's BMC has no credential")?;
    let networks = allow_address(conn, s, credential, address).await?;
    let sealed = db::keys::find_secret(conn, credential)
        .await?
        .context("the BMC credential has no secret")?;
    let declared = open_password(&s.keys.master, &secret_place(credential), &sealed)?;
    let user = db::specs::find_credential_user(conn, credential)
        .await?
        .context("the BMC credential has no user")?;
    let account = Account {
        address,
        port: s.node.bmc_port,
        user,
    };
    let based_on = Digest::of(&sealed.ciphertext).0.to_vec();
    let Some(row) = db::bmc_passwords::find(conn, &account).await? else {
        return Ok(Passwords {
            account,
            current: declared,
            next: None,
            kept: None,
            networks,
            based_on,
        });
    };
    let place = account.place();
    let last = open_password(&s.keys.master, &place, &row.current)?;
    let next = row
        .next
        .as_ref()
        .map(|next| open_password(&s.keys.master, &place, next))
        .transpose()?;
    let (current, kept) = if row.based_on == based_on {
        (last, None)
    } else {
        (declared, Some(last))
    };
    Ok(Passwords {
        account,
        current,
        next,
        kept,
        networks,
        based_on,
    })
}

/// Returns the networks that the credential may go to at the node's site. No password is opened for
/// an address outside.
async fn allow_address(
    conn: &mut PgConnection,
    s: &Sources<'_>,
    credential: ObjectId,
    address: IpAddr,
) -> anyhow::Result<Vec<IpNet>> {
    ensure!(
        may_connect(&[], address),
        "the BMC {address} of {} has a special address, such as loopback: correct the address",
        s.node.name
    );
    let of_site = document::stored_networks(&s.node.site_spec, "bmc_networks")
        .map_err(|why| anyhow!("the site's spec cannot be read ({why}): write the spec again"))?;
    let row = db::objects::find_by_id(conn, credential)
        .await?
        .context("the BMC's credential is gone")?;
    let of_credential = document::stored_networks(&row.spec, "networks").map_err(|why| {
        anyhow!("the credential's spec cannot be read ({why}): write the spec again")
    })?;
    let named = [
        ("the bmc_networks of the site", &of_site),
        ("the networks of the credential", &of_credential),
    ];
    for (whose, networks) in named {
        ensure!(
            networks.is_empty() || is_inside(networks, address),
            "the BMC {address} of {} is outside of {whose} ({}): correct the address, or add its network",
            s.node.name,
            list_networks(networks)
        );
    }
    let Some(both) = intersect(&of_site, &of_credential) else {
        return Ok(Vec::new());
    };
    // An empty list in the order would be no limit.
    ensure!(
        is_inside(&both, address),
        "the BMC {address} of {} is outside of the networks that the site and the credential have in common",
        s.node.name
    );
    Ok(both)
}

fn build_power(
    s: &Sources<'_>,
    user: String,
    password: Secret,
    also: Option<Secret>,
    bmc_networks: Vec<IpNet>,
) -> anyhow::Result<Power> {
    let address = s.node.bmc_address.context("the node has no BMC")?;
    let port = u16::try_from(s.node.bmc_port).context("the BMC's port")?;
    let (uuid, serial) = (s.node.smbios_uuid.clone(), s.node.serial.clone());
    let machine = (uuid.is_some() || serial.is_some()).then_some(Machine { uuid, serial });
    match s.node.power {
        PowerKind::Redfish => {
            let certificate = s
                .node
                .bmc_certificate
                .as_deref()
                .map(str::parse)
                .transpose()?;
            let system = s.node.bmc_system.clone();
            Ok(Power::Redfish(BmcTarget {
                address,
                port,
                user,
                password,
                certificate,
                system,
                also,
                machine,
                bmc_networks,
            }))
        }
        PowerKind::Ipmi => {
            let firmware = s.node.bmc_firmware.unwrap_or(Firmware::Uefi);
            Ok(Power::Ipmi(IpmiTarget {
                address,
                port,
                user,
                password,
                firmware,
                also,
                machine,
                bmc_networks,
            }))
        }
        PowerKind::Manual => bail!("{} is switched by a person", s.node.name),
    }
}

/// Returns the place of a credential's secret. The place is bound into the ciphertext, so a secret
/// cannot be moved to another credential.
pub fn secret_place(credential: ObjectId) -> String {
    format!("secrets/{credential}")
}

fn open_password(master: &MasterKey, place: &str, sealed: &Sealed) -> anyhow::Result<Secret> {
    let bytes = master.open(place, sealed)?;
    Ok(Secret::new(
        String::from_utf8(bytes).context("the BMC's password is not UTF-8")?,
    ))
}

/// Generates a new random password.
fn generate_password() -> Secret {
    let rng = &mut rand::rng();
    let all = CLASSES.concat();
    let mut letters: Vec<u8> = CLASSES
        .iter()
        .filter_map(|class| class.choose(rng).copied())
        .collect();
    letters.extend((letters.len()..LENGTH).filter_map(|_| all.choose(rng).copied()));
    letters.shuffle(rng);
    Secret::new(String::from_utf8_lossy(&letters).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_has_what_bmcs_insist_on_and_is_nobodys() {
        let made: Vec<String> = (0..200)
            .map(|_| generate_password().reveal().to_owned())
            .collect();
        for password in &made {
            assert_eq!(password.len(), LENGTH, "{password}");
            for class in CLASSES {
                assert!(
                    password.bytes().any(|byte| class.contains(&byte)),
                    "{password}"
                );
            }
        }
        let different: std::collections::BTreeSet<&String> = made.iter().collect();
        assert_eq!(different.len(), made.len());
    }
}
