//! Whether a machine is the one we mean, by what its firmware says (SMBIOS type 1).

use muster_core::facts::Smbios;
use muster_core::wire::bmc::Machine;
use muster_core::wire::node::Failure;

use crate::bmc::BmcView;
use crate::work::context::fatal;

/// What somebody we believe says of the machine; absent where they do not know.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Wanted<'a> {
    pub(super) uuid: Option<&'a str>,
    pub(super) serial: Option<&'a str>,
}

/// Compares all that is wanted; a machine that does not say what is wanted is not taken for the one we mean.
pub(super) fn check(source: &str, wanted: Wanted<'_>, shown: &Smbios) -> Result<(), Failure> {
    let uuid = wanted.uuid.and_then(known);
    let serial = wanted.serial.and_then(known);
    let told = |value: &Option<String>| value.clone().unwrap_or_else(|| "nothing".into());
    if let Some(uuid) = uuid {
        let fits = shown.uuid.as_deref().is_some_and(|shown| same_uuid(uuid, shown));
        refuse_unless(fits, || format!("{source} names SMBIOS UUID {uuid}, the machine says {}", told(&shown.uuid)))?;
    }
    if let Some(serial) = serial {
        let fits = shown.serial.as_deref().is_some_and(|shown| shown.trim().eq_ignore_ascii_case(serial));
        refuse_unless(fits, || format!("{source} names serial {serial:?}, the machine says {}", told(&shown.serial)))?;
    }
    Ok(())
}

/// What a BMC says of the machine behind it, against the one that is meant: what either does not know is no difference.
pub(super) fn behind(machine: &Machine, view: &BmcView) -> Result<(), Failure> {
    let pairs = [(&machine.uuid, &view.uuid), (&machine.serial, &view.serial)];
    let both = |(meant, shown): (&'_ Option<String>, &'_ Option<String>)| {
        Some((known(meant.as_deref()?)?.to_owned(), known(shown.as_deref()?)?.to_owned()))
    };
    for (meant, shown) in pairs.into_iter().filter_map(both) {
        refuse_unless(same_uuid(&meant, &shown), || {
            format!(
                "the BMC at its address says that its machine is {shown}, and this one is {meant}: nothing is asked of it; \
                 correct bmc.address of the node, or replace its parts where its board was exchanged"
            )
        })?;
    }
    Ok(())
}

fn refuse_unless(fits: bool, message: impl FnOnce() -> String) -> Result<(), Failure> {
    match fits {
        true => Ok(()),
        false => Err(fatal("identity_mismatch", message())),
    }
}

/// Words that vendors leave in the field when nobody filled it.
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
    (!filler.contains(&text.to_ascii_lowercase().as_str())).then_some(text)
}

/// UUIDs are equal too when the first three fields are in the other byte order: SMBIOS before 2.6 left it open (DSP0134 §7.2.1), and
/// BMCs do it either way.
fn same_uuid(one: &str, other: &str) -> bool {
    match (uuid::Uuid::try_parse(one), uuid::Uuid::try_parse(other.trim())) {
        (Ok(one), Ok(other)) => one == other || one.to_bytes_le() == *other.as_bytes(),
        _ => one.eq_ignore_ascii_case(other.trim()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(uuid: &str, serial: &str) -> Smbios {
        Smbios { uuid: Some(uuid.into()), serial: Some(serial.into()), ..Smbios::default() }
    }

    #[test]
    fn all_that_is_known_must_fit() {
        let uuid = "12345678-1234-5678-9abc-def012345678";
        let machine = shown("78563412-3412-7856-9ABC-DEF012345678", "S1 ");
        let fits = |uuid, serial| check("x", Wanted { uuid, serial }, &machine).is_ok();
        assert!(fits(Some(uuid), Some("s1")));
        assert!(fits(None, None));
        assert!(fits(None, Some("To Be Filled By O.E.M.")), "a filler is no knowledge");
        assert!(!fits(Some("12345678-1234-5678-9abc-def012345679"), None));
        assert!(!fits(None, Some("S2")));
        assert!(
            check("x", Wanted { uuid: Some(uuid), serial: None }, &Smbios::default()).is_err(),
            "silence is no proof"
        );
    }
}
