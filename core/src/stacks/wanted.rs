//! Firmware and BIOS values wanted for a machine, from the lock of a stack. An item may be for certain
//! products only. While the machine's product is unknown, so are the values of such items.

use std::collections::{BTreeMap, BTreeSet};

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
        self.select_firmware(|only| is_for(only, product), |_| true)
    }

    /// Returns the firmware and BIOS values wanted for every product. A value is left out if an item
    /// for certain products names the same component or attribute.
    fn firmware_of_all(&self) -> Wanted {
        self.select_firmware(|_| true, |only| !is_of_products(only))
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
            let wanted = self.select_firmware(|only| only == Some(product), |_| true);
            let of_product = wanted.compare(None).into_iter();
            of_product.map(move |one| Compared {
                item: format!("{} for {product}", one.item),
                ..one
            })
        });
        unknown.collect()
    }

    /// Returns the wanted values. `fits` selects items by product pattern, each component and
    /// attribute gets a single value, and `keeps` then selects by pattern again.
    fn select_firmware(
        &self,
        fits: impl Fn(Option<&str>) -> bool,
        keeps: impl Fn(Option<&str>) -> bool,
    ) -> Wanted {
        let own = self
            .firmware
            .iter()
            .map(|item| (&item.product, &item.attributes));
        let bios = self
            .bios
            .iter()
            .map(|item| (&item.product, &item.attributes));
        let attributes = own.chain(bios).flat_map(|(product, attributes)| {
            attributes.iter().map(|(name, value)| Candidate {
                name,
                product: product.as_deref(),
                value,
            })
        });
        Wanted {
            firmware: choose_firmware(&self.firmware, &fits)
                .into_iter()
                .filter(|item| keeps(item.product.as_deref()))
                .map(want)
                .collect(),
            bios: choose(attributes.filter(|one| fits(one.product)))
                .into_iter()
                .filter(|one| keeps(one.product))
                .map(|one| (one.name.to_owned(), one.value.clone()))
                .collect(),
        }
    }
}

/// Chooses an item for each component among the items with a fitting product pattern.
pub(super) fn choose_firmware(
    items: &[FirmwareItem],
    fits: impl Fn(Option<&str>) -> bool,
) -> Vec<&FirmwareItem> {
    let candidates = items.iter().map(|item| Candidate {
        name: &item.component,
        product: item.product.as_deref(),
        value: item,
    });
    let chosen = choose(candidates.filter(|one| fits(one.product)));
    chosen.into_iter().map(|one| one.value).collect()
}

/// A value for a component or an attribute, and the products that it is for.
struct Candidate<'a, T> {
    name: &'a str,
    product: Option<&'a str>,
    value: &'a T,
}

/// Chooses a value for each name, in the order of the stack. The longest product pattern wins; a
/// value for every product has the shortest.
fn choose<'a, T>(values: impl Iterator<Item = Candidate<'a, T>>) -> Vec<Candidate<'a, T>> {
    let mut chosen: BTreeMap<&str, (usize, Candidate<'a, T>)> = BTreeMap::new();
    for (at, value) in values.enumerate() {
        let other = chosen.get(value.name);
        if other.is_none_or(|(_, other)| rank(other.product) <= rank(value.product)) {
            chosen.insert(value.name, (at, value));
        }
    }
    let mut chosen: Vec<_> = chosen.into_values().collect();
    chosen.sort_by_key(|(at, _)| *at);
    chosen.into_iter().map(|(_, value)| value).collect()
}

/// Returns the length of a product pattern without stars, then the pattern. The rank of patterns
/// does not depend on the order in the stack, so a diff of two stacks shows every change.
fn rank(only: Option<&str>) -> (usize, &str) {
    let only = only.filter(|only| is_of_products(Some(only)));
    let only = only.unwrap_or_default();
    (only.chars().filter(|c| *c != '*').count(), only)
}

fn want(item: &FirmwareItem) -> WantedFirmware {
    WantedFirmware {
        component: item.component.clone(),
        version: item.version.clone(),
        image: item.image,
        class: item.class,
    }
}

/// Returns whether an item with this pattern is for a machine with this product name.
pub(super) fn is_for(only: Option<&str>, product: &str) -> bool {
    only.is_none_or(|only| rules::glob(only, product))
}

/// Returns whether a pattern of an item selects certain products only.
pub(super) fn is_of_products(only: Option<&str>) -> bool {
    only.is_some_and(|only| !rules::glob(only, ""))
}

/// Returns the product name of a machine, if known.
pub(super) fn find_product(facts: Option<&Facts>) -> Option<&str> {
    let product = facts?.smbios.product.as_deref()?;
    Some(product).filter(|product| !product.is_empty())
}
