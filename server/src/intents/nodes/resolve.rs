//! The spec of a node as rows: the named objects, the power control and the addresses.

use std::collections::BTreeSet;

use muster_api::nodes::{NodeConsole, NodePower, NodeSpec};
use muster_api::object::Draft;
use muster_core::values::Mac;
use serde_json::Value;
use sqlx::PgConnection;

use crate::db;
use crate::db::macs::MacRow;
use crate::db::nodes::{Content, Power};
use crate::db::objects::ObjectRow;
use crate::document::{fault, label_faults};
use crate::error::{Error, Fault};
use crate::intents::nodes::addresses;
use crate::intents::references::{Referrer, Table, missing_fault};

/// All possible references of a node.
pub(crate) const REFERENCES: Table = &[
    ("/spec/site", "site"),
    ("/spec/rack", "rack"),
    ("/spec/profile", "hardware_profile"),
    ("/spec/power/redfish/bmc/credential", "credential"),
    ("/spec/power/ipmi/bmc/credential", "credential"),
    ("/spec/macs/*/subnet", "subnet"),
];

/// Longest user name of IPMI 2.0 (section 22.28).
pub(crate) const IPMI_USER_BYTES: usize = 16;

/// The limits of IPMI for accounts, as a sentence.
pub(crate) fn describe_ipmi_user() -> String {
    format!("An IPMI user has at most {IPMI_USER_BYTES} bytes, and its password 20.")
}

/// Finds the objects named by the spec and reserves the addresses. `former` is the stored spec,
/// `None` for a new node.
///
/// # Errors
/// 403 for a new reference beyond the rights of the writer; 422 with every fault of the spec.
pub(crate) async fn resolve(
    conn: &mut PgConnection,
    referrer: &Referrer<'_>,
    draft: Draft<NodeSpec>,
    as_written: Value,
    former: Option<&Value>,
) -> Result<(Content, Vec<MacRow>), Error> {
    let spec = draft.spec;
    let mut faults = label_faults(&draft.labels, &draft.annotations);
    let site = Some(spec.site.as_str());
    let site = find_end(conn, referrer, &mut faults, "/spec/site", "site", site).await?;
    let rack = spec.rack.as_deref();
    let rack = find_end(conn, referrer, &mut faults, "/spec/rack", "rack", rack).await?;
    let (kind, profile) = ("hardware_profile", spec.profile.as_deref());
    let profile = find_end(conn, referrer, &mut faults, "/spec/profile", kind, profile).await?;
    check_place(&mut faults, &spec, rack.as_ref());
    let power = resolve_power(conn, referrer, &mut faults, &spec.power).await?;
    let had = former.map(list_macs).unwrap_or_default();
    let macs = addresses::reserve(conn, referrer, &mut faults, &spec, &had).await?;
    let (Some(site), Some(power), true) = (site, power, faults.is_empty()) else {
        return Err(Error::Unprocessable(faults));
    };
    let content = Content {
        labels: draft.labels,
        annotations: draft.annotations,
        spec: as_written,
        site: site.id,
        rack: rack.map(|row| row.id),
        rack_unit: spec.rack_unit.and_then(|unit| i32::try_from(unit).ok()),
        profile: profile.map(|row| row.id),
        serial: spec.serial,
        smbios_uuid: spec.smbios_uuid,
        power,
        console: spec
            .console
            .map(|NodeConsole::Tcp { address, port }| (address, port)),
        protected: spec.protected,
        certificate: None,
    };
    Ok((content, macs))
}

/// Finds the object named by a member. A name without an object adds a fault; an absent member
/// returns `None`.
pub(crate) async fn find_target(
    conn: &mut PgConnection,
    faults: &mut Vec<Fault>,
    pointer: &str,
    kind: &str,
    name: Option<&str>,
) -> Result<Option<ObjectRow>, Error> {
    let Some(name) = name else { return Ok(None) };
    let row = db::objects::find_for_reference(conn, kind, name).await?;
    if row.is_none() {
        faults.push(missing_fault(pointer, kind, name));
    }
    Ok(row)
}

/// Finds the target of a node's reference. A name without an object adds a fault, and so does an
/// object hidden from the writer; an absent member returns `None`.
///
/// # Errors
/// 403 for a new reference beyond the rights of the writer.
pub(crate) async fn find_end(
    conn: &mut PgConnection,
    referrer: &Referrer<'_>,
    faults: &mut Vec<Fault>,
    pointer: &str,
    kind: &str,
    name: Option<&str>,
) -> Result<Option<ObjectRow>, Error> {
    let Some(name) = name else { return Ok(None) };
    let row = referrer.find(conn, pointer, kind, name).await?;
    if row.is_none() {
        faults.push(missing_fault(pointer, kind, name));
    }
    Ok(row)
}

/// Lists the MACs of a stored spec, also of an unreadable spec.
fn list_macs(spec: &Value) -> BTreeSet<Mac> {
    let macs = spec["macs"].as_array().into_iter().flatten();
    macs.filter_map(|mac| mac["mac"].as_str()?.parse().ok())
        .collect()
}

fn check_place(faults: &mut Vec<Fault>, spec: &NodeSpec, rack: Option<&ObjectRow>) {
    if let Some(rack) = rack {
        if rack.spec["site"] != spec.site.as_str() {
            faults.push(fault(
                "/spec/rack",
                "other_site",
                format!("{} is in another site.", rack.name),
            ));
        }
        let units = rack.spec["units"].as_u64().unwrap_or(0);
        if spec
            .rack_unit
            .is_some_and(|unit| unit == 0 || u64::from(unit) > units)
        {
            faults.push(fault(
                "/spec/rack_unit",
                "out_of_range",
                format!("{} has the units 1 to {units}.", rack.name),
            ));
        }
    } else if spec.rack_unit.is_some() && spec.rack.is_none() {
        faults.push(fault(
            "/spec/rack_unit",
            "no_rack",
            "A unit without a rack.",
        ));
    }
    if matches!(spec.console, Some(NodeConsole::Tcp { port: 0, .. })) {
        faults.push(fault(
            "/spec/console/tcp/port",
            "out_of_range",
            "1 to 65535",
        ));
    }
    if spec
        .serial
        .as_deref()
        .is_some_and(|serial| !(1..=128).contains(&serial.len()))
    {
        faults.push(fault("/spec/serial", "out_of_range", "1 to 128 bytes"));
    }
}

/// Resolves the power control of the node, with the credential of the BMC.
async fn resolve_power(
    conn: &mut PgConnection,
    referrer: &Referrer<'_>,
    faults: &mut Vec<Fault>,
    power: &NodePower,
) -> Result<Option<Power>, Error> {
    match power {
        NodePower::Redfish { bmc } => {
            let pointer = "/spec/power/redfish/bmc";
            let fits = |id: &str| {
                (1..=128).contains(&id.len())
                    && id.bytes().all(|b| b.is_ascii_graphic() && b != b'/')
            };
            if bmc.system.as_deref().is_some_and(|id| !fits(id)) {
                let detail =
                    "The Id of a computer system: 1 to 128 printable characters, no slash.";
                faults.push(fault(format!("{pointer}/system"), "invalid", detail));
            }
            let credential =
                find_bmc_credential(conn, referrer, faults, pointer, &bmc.credential, bmc.port)
                    .await?;
            let (address, port, system) = (bmc.address, bmc.port, bmc.system.clone());
            Ok(credential.map(|row| Power::Redfish {
                address,
                port,
                credential: row.id,
                system,
            }))
        }
        NodePower::Ipmi { bmc } => {
            let pointer = "/spec/power/ipmi/bmc";
            let credential =
                find_bmc_credential(conn, referrer, faults, pointer, &bmc.credential, bmc.port)
                    .await?;
            let user = credential
                .as_ref()
                .and_then(|row| row.spec["user"].as_str());
            if user.is_some_and(|user| user.len() > IPMI_USER_BYTES) {
                faults.push(fault(
                    format!("{pointer}/credential"),
                    "out_of_range",
                    describe_ipmi_user(),
                ));
            }
            let (address, port, firmware) = (bmc.address, bmc.port, bmc.firmware);
            Ok(credential.map(|row| Power::Ipmi {
                address,
                port,
                credential: row.id,
                firmware,
            }))
        }
        NodePower::Manual { person } => {
            if !(1..=200).contains(&person.len()) {
                faults.push(fault(
                    "/spec/power/manual/person",
                    "out_of_range",
                    "1 to 200 bytes",
                ));
            }
            Ok(Some(Power::Manual {
                person: person.clone(),
            }))
        }
    }
}

/// Finds the credential for the login at the BMC. A credential with another purpose adds a fault.
async fn find_bmc_credential(
    conn: &mut PgConnection,
    referrer: &Referrer<'_>,
    faults: &mut Vec<Fault>,
    bmc: &str,
    name: &str,
    port: u16,
) -> Result<Option<ObjectRow>, Error> {
    if port == 0 {
        faults.push(fault(format!("{bmc}/port"), "out_of_range", "1 to 65535"));
    }
    let pointer = format!("{bmc}/credential");
    let credential = find_end(conn, referrer, faults, &pointer, "credential", Some(name)).await?;
    Ok(credential.filter(|row| {
        let fits = row.spec["purpose"] == "bmc";
        if !fits {
            faults.push(fault(
                &pointer,
                "wrong_purpose",
                "A credential whose purpose is bmc.",
            ));
        }
        fits
    }))
}
