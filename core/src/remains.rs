//! Identifiers of a machine and of its disks. The remains of a deleted node are found again by any
//! single identifier.

use std::collections::BTreeSet;

use uuid::Uuid;

use crate::parts::keep_meaningful;
use crate::values::Mac;
use crate::words;

/// Sample UUIDs left in firmware by board makers, in both byte orders where both were seen.
const SAMPLES: [Uuid; 3] = [
    uuid::uuid!("03000200-0400-0500-0006-000700080009"),
    uuid::uuid!("00020003-0004-0005-0006-000700080009"),
    uuid::uuid!("12345678-1234-5678-90ab-cddeefaabbcc"),
];

words! {
    /// The kind of an identifier.
    IdentifierKind, "kind of identifier" {
        /// Of the system, the chassis or the board: makers use each for the label.
        Serial = "serial",
        /// The SMBIOS UUID.
        Uuid = "uuid",
        Mac = "mac",
        /// The serial of a disk, which can move to another machine.
        Disk = "disk",
    }
}

/// A set of identifiers in one spelling. Rubbish of vendors is left out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Identifiers(BTreeSet<(&'static str, String)>);

impl Identifiers {
    /// Adds the serial of a system, chassis or board.
    pub fn add_serial(&mut self, serial: &str) {
        self.add_text(IdentifierKind::Serial, serial);
    }

    /// Adds the serial of a disk.
    pub fn add_disk(&mut self, serial: &str) {
        self.add_text(IdentifierKind::Disk, serial);
    }

    /// Adds a UUID in both byte orders: SMBIOS before 2.6 did not define the order (DSP0134
    /// §7.2.1).
    pub fn add_uuid(&mut self, uuid: Uuid) {
        if is_meaningless(uuid) {
            return;
        }
        for order in [uuid, Uuid::from_bytes(uuid.to_bytes_le())] {
            self.0
                .insert((IdentifierKind::Uuid.as_str(), order.to_string()));
        }
    }

    /// Adds a MAC. Groups of receivers and the zero address belong to no machine.
    pub fn add_mac(&mut self, mac: Mac) {
        if mac.is_of_machine() {
            self.0
                .insert((IdentifierKind::Mac.as_str(), mac.to_string()));
        }
    }

    /// Adds the MAC of an interface from an inventory. Addresses chosen by software are left out:
    /// the interface between BMC and host has the same address in many machines.
    pub fn add_interface(&mut self, mac: Mac) {
        let is_chosen = mac.0[0] & 2 == 2;
        if !is_chosen {
            self.add_mac(mac);
        }
    }

    /// Removes the disks: disks without data can move and identify no machine.
    pub fn drop_disks(&mut self) {
        self.0
            .retain(|(kind, _)| *kind != IdentifierKind::Disk.as_str());
    }

    /// Returns the identifiers that are not in `other`.
    pub fn without(&self, other: &Self) -> Self {
        Self(self.0.difference(&other.0).cloned().collect())
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the words of the kinds, in the order of [`Self::values`].
    pub fn kinds(&self) -> Vec<String> {
        self.0.iter().map(|(kind, _)| (*kind).to_owned()).collect()
    }

    /// Returns the values, in the order of [`Self::kinds`].
    pub fn values(&self) -> Vec<String> {
        self.0.iter().map(|(_, value)| value.clone()).collect()
    }

    fn add_text(&mut self, kind: IdentifierKind, text: &str) {
        if let Some(text) = keep_meaningful(text) {
            self.0.insert((kind.as_str(), text.to_uppercase()));
        }
    }
}

/// Returns whether a UUID is unset, a sample, or a single repeated digit.
fn is_meaningless(uuid: Uuid) -> bool {
    let digits = uuid.simple().to_string();
    let mut digits = digits.chars();
    let first = digits.next();
    SAMPLES.contains(&uuid) || digits.all(|digit| Some(digit) == first)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(add: impl FnOnce(&mut Identifiers)) -> Vec<String> {
        let mut shown = Identifiers::default();
        add(&mut shown);
        assert_eq!(shown.kinds().len(), shown.values().len());
        shown.values()
    }

    #[test]
    fn rubbish_of_vendors_identifies_no_machine() {
        for text in [
            "",
            "  ",
            "00000000",
            "To Be Filled By O.E.M.",
            "Default string",
            "System Serial Number",
            "0123456789",
            "123456789",
            "XXXXXXXX",
            "ffff-ffff",
            "Not Specified",
        ] {
            assert!(values(|shown| shown.add_serial(text)).is_empty(), "{text}");
            assert!(values(|shown| shown.add_disk(text)).is_empty(), "{text}");
        }
        for text in [
            "00000000-0000-0000-0000-000000000000",
            "ffffffff-ffff-ffff-ffff-ffffffffffff",
            "11111111-1111-1111-1111-111111111111",
            "03000200-0400-0500-0006-000700080009",
            "00020003-0004-0005-0006-000700080009",
        ] {
            let uuid = text.parse().unwrap();
            assert!(values(|shown| shown.add_uuid(uuid)).is_empty(), "{text}");
        }
        for mac in [[0; 6], [0xff; 6], [0x01, 0, 0x5e, 0, 0, 1]] {
            assert!(values(|shown| shown.add_mac(Mac(mac))).is_empty());
        }
    }

    #[test]
    fn spelling_and_byte_order_make_no_difference() {
        assert_eq!(
            values(|shown| shown.add_serial(" s3yxnx0k123456 ")),
            ["S3YXNX0K123456"]
        );
        let one: Uuid = "4c4c4544-0043-4810-8052-b4c04f4e3132".parse().unwrap();
        let other = Uuid::from_bytes(one.to_bytes_le());
        assert_ne!(one, other);
        assert_eq!(
            values(|shown| shown.add_uuid(one)),
            values(|shown| shown.add_uuid(other))
        );
    }

    #[test]
    fn addresses_chosen_by_software_count_only_where_declared() {
        let chosen = Mac([0xbe, 0x3a, 0xf2, 0xb6, 0x05, 0x9f]);
        assert!(values(|shown| shown.add_interface(chosen)).is_empty());
        assert_eq!(values(|shown| shown.add_mac(chosen)).len(), 1);
        let burnt_in = Mac([0x3c, 0xec, 0xef, 1, 2, 3]);
        assert_eq!(values(|shown| shown.add_interface(burnt_in)).len(), 1);
    }

    #[test]
    fn removed_identifiers_are_those_of_the_former_set_alone() {
        let set = |serials: &[&str]| {
            let mut shown = Identifiers::default();
            serials.iter().for_each(|serial| shown.add_serial(serial));
            shown
        };
        let removed = set(&["SN-1", "SN-2"]).without(&set(&["SN-2", "SN-3"]));
        assert_eq!(removed.values(), ["SN-1"]);
        assert!(removed.without(&removed).is_empty() && !removed.is_empty());
    }

    #[test]
    fn disks_are_kept_only_where_the_disks_hold_data() {
        let left = values(|shown| {
            shown.add_serial("SN-1");
            shown.add_disk("D-1");
            shown.drop_disks();
        });
        assert_eq!(left, ["SN-1"]);
    }
}
