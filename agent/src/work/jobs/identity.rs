//! Checks the identity of a machine by the data of its firmware (SMBIOS type 1).

use muster_core::facts::Smbios;
use muster_core::wire::bmc::Machine;
use muster_core::wire::node::{Failure, FailureCode};

use crate::bmc::BmcView;
use crate::work::context::fatal;

/// The expected identity from a trusted source. Unknown values are absent.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Wanted<'a> {
    pub(super) uuid: Option<&'a str>,
    pub(super) serial: Option<&'a str>,
}

/// Compares all expected values. A machine without an expected value fails the check.
pub(super) fn check(source: &str, wanted: Wanted<'_>, shown: &Smbios) -> Result<(), Failure> {
    let uuid = wanted.uuid.and_then(known);
    let serial = wanted.serial.and_then(known);
    let told = |value: &Option<String>| value.clone().unwrap_or_else(|| "nothing".into());
    if let Some(uuid) = uuid {
        let fits = shown
            .uuid
            .as_deref()
            .is_some_and(|shown| same_uuid(uuid, shown));
        refuse_unless(fits, || {
            format!(
                "{source} names SMBIOS UUID {uuid}, the machine says {}",
                told(&shown.uuid)
            )
        })?;
    }
    if let Some(serial) = serial {
        let fits = shown
            .serial
            .as_deref()
            .is_some_and(|shown| shown.trim().eq_ignore_ascii_case(serial));
        refuse_unless(fits, || {
            format!(
                "{source} names serial {serial:?}, the machine says {}",
                told(&shown.serial)
            )
        })?;
    }
    Ok(())
}

/// Compares the machine reported by a BMC with the expected machine. Values unknown to either side
/// are not compared.
pub(super) fn behind(machine: &Machine, view: &BmcView) -> Result<(), Failure> {
    let Some((meant, shown)) = difference(machine.uuid.as_deref(), machine.serial.as_deref(), view)
    else {
        return Ok(());
    };
    Err(fatal(
        FailureCode::IdentityMismatch,
        format!(
            "the BMC at its address says that its machine is {shown}, and this one is {meant}: nothing is asked of it; \
             correct bmc.address of the node, or replace its parts where its board was exchanged"
        ),
    ))
}

/// Compares the identity reported by the machine with the identity reported by its BMC.
pub(super) fn before(view: &BmcView, machine: &Smbios) -> Result<(), Failure> {
    match difference(machine.uuid.as_deref(), machine.serial.as_deref(), view) {
        None => Ok(()),
        Some((own, shown)) => Err(fatal(
            FailureCode::IdentityMismatch,
            format!("its BMC names {shown}, the machine says {own}"),
        )),
    }
}

/// Returns the differing values of the machine and the BMC. If both know a UUID, only the UUID
/// decides. The serial in Redfish is the serial of the board for some makers and of the chassis for
/// others, and the serial on the label can be in the SKU.
fn difference<'a>(
    uuid: Option<&'a str>,
    serial: Option<&'a str>,
    view: &'a BmcView,
) -> Option<(&'a str, &'a str)> {
    let of = |text: Option<&'a str>| text.and_then(known);
    if let (Some(own), Some(shown)) = (of(uuid), of(view.uuid.as_deref())) {
        return (!same_uuid(own, shown)).then_some((own, shown));
    }
    let own = of(serial)?;
    let serials: Vec<&str> = [&view.serial, &view.sku]
        .into_iter()
        .filter_map(|text| of(text.as_deref()))
        .collect();
    let differs = serials.iter().all(|shown| !shown.eq_ignore_ascii_case(own));
    serials
        .first()
        .filter(|_| differs)
        .map(|shown| (own, *shown))
}

fn refuse_unless(fits: bool, message: impl FnOnce() -> String) -> Result<(), Failure> {
    match fits {
        true => Ok(()),
        false => Err(fatal(FailureCode::IdentityMismatch, message())),
    }
}

/// Returns the text, or `None` for the filler words left by vendors in an empty field.
fn known(text: &str) -> Option<&str> {
    let text = text.trim();
    let filler = [
        "",
        "none",
        "unknown",
        "n/a",
        "not specified",
        "default string",
        "to be filled by o.e.m.",
        "system serial number",
    ];
    (!filler.contains(&text.to_ascii_lowercase().as_str()) && !is_nobodys(text)).then_some(text)
}

/// Returns whether a UUID means an unset value (DSP0134 §7.2.1), or is the sample value left in the
/// firmware by some board makers.
fn is_nobodys(text: &str) -> bool {
    const SAMPLE: uuid::Uuid = uuid::uuid!("03000200-0400-0500-0006-000700080009");
    uuid::Uuid::try_parse(text).is_ok_and(|uuid| uuid.is_nil() || uuid.is_max() || uuid == SAMPLE)
}

/// Returns whether two UUIDs are equal, also with the first three fields in the other byte order.
/// SMBIOS before 2.6 did not define the order (DSP0134 §7.2.1), and BMCs use both.
fn same_uuid(one: &str, other: &str) -> bool {
    match (
        uuid::Uuid::try_parse(one),
        uuid::Uuid::try_parse(other.trim()),
    ) {
        (Ok(one), Ok(other)) => one == other || one.to_bytes_le() == *other.as_bytes(),
        _ => one.eq_ignore_ascii_case(other.trim()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(uuid: &str, serial: &str) -> Smbios {
        Smbios {
            uuid: Some(uuid.into()),
            serial: Some(serial.into()),
            ..Smbios::default()
        }
    }

    #[test]
    fn a_uuid_decides_and_else_any_serial_that_the_bmc_knows() {
        let [own, other, nil] = [
            "4c4c4544-0043-4810-8052-b4c04f4e3132",
            "4c4c4544-0043-4810-8052-b4c04f4e3133",
            &uuid::Uuid::nil().to_string(),
        ];
        let view = |uuid: &str, serial: &str, sku: &str| BmcView {
            uuid: Some(uuid.into()),
            serial: Some(serial.into()),
            sku: Some(sku.into()),
            ..BmcView::default()
        };
        let fits = |uuid: &str, view: &BmcView| {
            let machine = Machine {
                uuid: Some(uuid.into()),
                serial: Some("7QHN412".into()),
            };
            let smbios = shown(uuid, "7QHN412");
            assert_eq!(
                behind(&machine, view).is_ok(),
                before(view, &smbios).is_ok()
            );
            behind(&machine, view).is_ok()
        };
        // As reported by Dell: the manufacturing serial, and the service tag as SKU (ComputerSystem
        // resource of iDRAC).
        assert!(fits(own, &view(own, "CNIVC0098B0123", "7QHN412")));
        assert!(!fits(own, &view(other, "7QHN412", "7QHN412")));
        // Before its first POST a BMC can lack the UUID. Then any matching serial is accepted.
        assert!(
            fits(own, &view(nil, "CNIVC0098B0123", "7qhn412"))
                && fits(own, &view(nil, "7QHN412", ""))
        );
        assert!(!fits(own, &view(nil, "CNIVC0098B0123", "7QHN413")));
        assert!(
            fits(own, &BmcView::default()),
            "one that says nothing, as IPMI does"
        );
    }

    #[test]
    fn all_that_is_known_must_fit() {
        let uuid = "12345678-1234-5678-9abc-def012345678";
        let machine = shown("78563412-3412-7856-9ABC-DEF012345678", "S1 ");
        let fits = |uuid, serial| check("x", Wanted { uuid, serial }, &machine).is_ok();
        assert!(fits(Some(uuid), Some("s1")));
        assert!(fits(None, None));
        assert!(
            fits(None, Some("To Be Filled By O.E.M.")),
            "a filler is no knowledge"
        );
        assert!(!fits(Some("12345678-1234-5678-9abc-def012345679"), None));
        assert!(!fits(None, Some("S2")));
        assert!(
            check(
                "x",
                Wanted {
                    uuid: Some(uuid),
                    serial: None
                },
                &Smbios::default()
            )
            .is_err(),
            "silence is no proof"
        );
    }
}
