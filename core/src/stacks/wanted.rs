//! Firmware and BIOS values wanted for a machine, from the lock of a stack. An item may be for certain
//! products only. While the machine's product is unknown, so are the values of such items.

use std::collections::BTreeSet;

use super::language::FirmwareItem;
use super::{StackLock, StackSpec, rules};
use crate::facts::Facts;
use crate::firmware::{BmcInventory, Compared, Wanted, WantedFirmware};

impl StackSpec {
    /// Returns the firmware and BIOS values wanted for a machine, from the lock. Later edits of the
    /// stack do not count until the next lock, because nodes were promised the locked values. While
    /// the machine's product is unknown, the values are those wanted for every product.
    pub fn firmware_of(&self, facts: Option<&Facts>) -> Wanted {
        let Some(lock) = &self.lock else {
            return Wanted::default();
        };
        match find_product(facts) {
            Some(product) => lock.firmware_of(product),
            None => lock.firmware_of_all(),
        }
    }

    /// Compares the wanted firmware and BIOS values with the BMC's report. Values for a product are
    /// unknown while the machine's product is unknown.
    pub fn compare_firmware(
        &self,
        facts: Option<&Facts>,
        seen: Option<&BmcInventory>,
    ) -> Vec<Compared> {
        let mut compared = self.firmware_of(facts).compare(seen);
        if let Some(lock) = &self.lock
            && find_product(facts).is_none()
        {
            compared.extend(lock.list_unknown());
        }
        compared
    }
}

impl StackLock {
    /// Returns the firmware and BIOS values wanted for a machine with this product name.
    pub fn firmware_of(&self, product: &str) -> Wanted {
        self.select_firmware(|only| only.is_none_or(|only| rules::glob(only, product)))
    }

    /// Returns the firmware and BIOS values wanted for every product. A value is left out if an item
    /// for certain products names the same component or attribute.
    fn firmware_of_all(&self) -> Wanted {
        let other = self.select_firmware(is_of_products);
        let Wanted { firmware, bios } = self.firmware_of("");
        let components: BTreeSet<&str> = other
            .firmware
            .iter()
            .map(|one| one.component.as_str())
            .collect();
        Wanted {
            firmware: firmware
                .into_iter()
                .filter(|one| !components.contains(one.component.as_str()))
                .collect(),
            bios: bios
                .into_iter()
                .filter(|(name, _)| !other.bios.contains_key(name))
                .collect(),
        }
    }

    /// Lists the values for certain products as unknown, with the product.
    fn list_unknown(&self) -> Vec<Compared> {
        let of_firmware = self.firmware.iter().map(|item| item.product.as_deref());
        let of_bios = self.bios.iter().map(|item| item.product.as_deref());
        let products = of_firmware.chain(of_bios);
        let products: BTreeSet<&str> = products
            .filter(|only| is_of_products(*only))
            .flatten()
            .collect();
        let unknown = products.into_iter().flat_map(|product| {
            let wanted = self.select_firmware(|only| only == Some(product));
            let of_product = wanted.compare(None).into_iter();
            of_product.map(move |one| Compared {
                item: format!("{} for {product}", one.item),
                ..one
            })
        });
        unknown.collect()
    }

    /// Returns the wanted values of the items whose product pattern is selected.
    fn select_firmware(&self, selects: impl Fn(Option<&str>) -> bool) -> Wanted {
        let is_for = |only: &Option<String>| selects(only.as_deref());
        let firmware: Vec<&FirmwareItem> = self
            .firmware
            .iter()
            .filter(|item| is_for(&item.product))
            .collect();
        let own = firmware.iter().map(|item| &item.attributes);
        let bios = self
            .bios
            .iter()
            .filter(|item| is_for(&item.product))
            .map(|item| &item.attributes);
        Wanted {
            bios: own
                .chain(bios)
                .flatten()
                .map(|(name, value)| (name.clone(), value.clone()))
                .collect(),
            firmware: firmware
                .into_iter()
                .map(
                    |FirmwareItem {
                         component,
                         version,
                         image,
                         class,
                         ..
                     }| WantedFirmware {
                        component: component.clone(),
                        version: version.clone(),
                        image: *image,
                        class: *class,
                    },
                )
                .collect(),
        }
    }
}

/// Returns whether a pattern of an item selects certain products only.
fn is_of_products(only: Option<&str>) -> bool {
    only.is_some_and(|only| !rules::glob(only, ""))
}

/// Returns the product name of a machine, if known.
fn find_product(facts: Option<&Facts>) -> Option<&str> {
    let product = facts?.smbios.product.as_deref()?;
    Some(product).filter(|product| !product.is_empty())
}
