//! Firmware and BIOS settings: the values reported by a BMC, the wanted values, and the
//! differences. A value that the BMC cannot report is unknown, which counts neither as equal nor as
//! different.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::stacks::rules::glob;
use crate::values::Digest;

/// A BIOS attribute's value (Redfish `Bios.Attributes`: string, integer or boolean).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(untagged)]
pub enum BiosValue {
    Flag(bool),
    Number(i64),
    Text(String),
}

impl BiosValue {
    /// Returns whether both values are equivalent. Some BMCs write numbers and flags as strings.
    pub fn means(&self, other: &Self) -> bool {
        self == other || self.to_string() == other.to_string()
    }

    /// Returns the same value in the type shown by the BMC.
    pub fn like(&self, shown: &Self) -> Self {
        match shown {
            Self::Text(_) => Self::Text(self.to_string()),
            Self::Flag(_) | Self::Number(_) => self.clone(),
        }
    }
}

impl fmt::Display for BiosValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag(flag) => write!(f, "{flag}"),
            Self::Number(number) => write!(f, "{number}"),
            Self::Text(text) => f.write_str(text),
        }
    }
}

/// A firmware entry as listed by a BMC.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct SeenFirmware {
    /// Id of the member of `UpdateService/FirmwareInventory`. The ids `bios` and `bmc` come from
    /// the computer system and its manager.
    pub id: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    pub version: String,
}

/// Returns whether an attribute with this name may hold a password. Such attributes are neither
/// stored nor set.
pub fn is_secret(attribute: &str) -> bool {
    let name = attribute.to_lowercase();
    ["password", "passwd", "passphrase", "secret"]
        .iter()
        .any(|word| name.contains(word))
}

/// Firmware and BIOS settings reported by a BMC.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct BmcInventory {
    pub firmware: Vec<SeenFirmware>,
    /// BIOS attributes by their Redfish names.
    pub bios: BTreeMap<String, BiosValue>,
    /// Sentences describing each failed read. Values missing above are then unknown.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unread: Vec<String>,
}

impl BmcInventory {
    /// Returns an empty inventory with the reason for the failed read.
    pub fn unread(why: impl Into<String>) -> Self {
        Self {
            unread: vec![why.into()],
            ..Self::default()
        }
    }

    /// Merges with an earlier inventory: values unreadable now keep their earlier value.
    /// [`Self::unread`] still records the failed reads.
    pub fn over(mut self, before: Self) -> Self {
        if self.unread.is_empty() {
            return self;
        }
        let unknown = |seen: &SeenFirmware| self.firmware.iter().all(|now| now.id != seen.id);
        let former: Vec<SeenFirmware> = before.firmware.into_iter().filter(unknown).collect();
        self.firmware.extend(former);
        for (name, value) in before.bios {
            self.bios.entry(name).or_insert(value);
        }
        self
    }

    /// Finds the firmware meant by a component of a stack. An exact id match wins; otherwise all
    /// ids matching the pattern, otherwise all names matching the pattern. `*` matches any text.
    pub fn find<'a>(&'a self, component: &str) -> Vec<&'a SeenFirmware> {
        let by = |fits: &dyn Fn(&SeenFirmware) -> bool| -> Vec<&'a SeenFirmware> {
            self.firmware.iter().filter(|seen| fits(seen)).collect()
        };
        let exact = by(&|seen| seen.id == component);
        let by_id = if exact.is_empty() {
            by(&|seen| fits(component, &seen.id))
        } else {
            exact
        };
        if by_id.is_empty() {
            by(&|seen| fits(component, &seen.name))
        } else {
            by_id
        }
    }
}

/// The action needed to activate a firmware update.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum UpdateClass {
    /// The machine must reboot through its firmware.
    #[default]
    Reboot,
    /// The update is active when finished, for example on a BMC.
    None,
}

impl UpdateClass {
    /// Returns whether the value is the default, used when a stack omits the class.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// A wanted firmware version.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WantedFirmware {
    /// The component name or pattern; see [`BmcInventory::find`].
    pub component: String,
    pub version: String,
    /// Digest of the update blob. Without a blob the version is compared and never written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<Digest>,
    #[serde(default, skip_serializing_if = "UpdateClass::is_default")]
    pub class: UpdateClass,
}

/// Wanted firmware versions and BIOS settings of a machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Wanted {
    pub firmware: Vec<WantedFirmware>,
    pub bios: BTreeMap<String, BiosValue>,
}

impl Wanted {
    /// Returns whether no firmware and no BIOS setting is wanted.
    pub fn is_empty(&self) -> bool {
        self.firmware.is_empty() && self.bios.is_empty()
    }

    /// Compares each wanted item with the reported value. `None` means the BMC did not answer at
    /// all.
    pub fn compare(&self, seen: Option<&BmcInventory>) -> Vec<Compared> {
        let mut all = Vec::new();
        for wanted in &self.firmware {
            let one = |label: &str, found: Option<&str>| Compared {
                item: format!("firmware {label}"),
                wanted: wanted.version.clone(),
                found: found.map(str::to_owned),
            };
            let found = seen
                .map(|seen| seen.find(&wanted.component))
                .unwrap_or_default();
            match found.as_slice() {
                [] => all.push(one(&wanted.component, None)),
                found => all.extend(found.iter().map(|seen| one(&seen.id, Some(&seen.version)))),
            }
        }
        for (name, wanted) in &self.bios {
            let found = seen.and_then(|seen| seen.bios.get(name));
            let same = found.is_some_and(|found| found.means(wanted));
            all.push(Compared {
                item: format!("bios {name}"),
                wanted: wanted.to_string(),
                found: if same {
                    Some(wanted.to_string())
                } else {
                    found.map(BiosValue::to_string)
                },
            });
        }
        all
    }
}

/// A wanted item and its reported value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Compared {
    /// Item name: `firmware bmc`, `bios SriovGlobalEnable`.
    pub item: String,
    pub wanted: String,
    /// The reported value; `None` if unknown.
    pub found: Option<String>,
}

impl Compared {
    /// Returns whether the item is known and different.
    pub fn differs(&self) -> bool {
        self.found
            .as_ref()
            .is_some_and(|found| *found != self.wanted)
    }
}

impl fmt::Display for Compared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.found {
            Some(found) => write!(f, "{} is {found}, wanted {}", self.item, self.wanted),
            None => write!(f, "{} is unknown, wanted {}", self.item, self.wanted),
        }
    }
}

/// Returns whether a pattern matches a text; `*` matches any text. The comparison ignores case,
/// because BMCs differ in upper and lower case.
fn fits(pattern: &str, text: &str) -> bool {
    glob(&pattern.to_lowercase(), &text.to_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(id: &str, name: &str, version: &str) -> SeenFirmware {
        SeenFirmware {
            id: id.into(),
            name: name.into(),
            version: version.into(),
        }
    }

    fn inventory() -> BmcInventory {
        BmcInventory {
            firmware: vec![
                seen("bios", "", "2.1"),
                seen("BIOS", "System BIOS", "Z 2.1"),
                seen("HGX_FW_GPU_SXM_1", "", "96.00"),
                seen("HGX_FW_GPU_SXM_2", "", "95.00"),
                seen("7", "Embedded NIC", "28.39"),
            ],
            bios: [
                ("SriovGlobalEnable", BiosValue::Text("Disabled".into())),
                ("NumaNodes", BiosValue::Text("2".into())),
                ("Turbo", BiosValue::Flag(true)),
            ]
            .map(|(name, value)| (name.to_owned(), value))
            .into(),
            unread: vec![],
        }
    }

    fn firmware(component: &str, version: &str) -> WantedFirmware {
        WantedFirmware {
            component: component.into(),
            version: version.into(),
            image: None,
            class: UpdateClass::default(),
        }
    }

    #[test]
    fn a_component_is_the_one_of_its_id_else_all_it_fits() {
        let ids = |component: &str| -> Vec<String> {
            inventory()
                .find(component)
                .into_iter()
                .map(|seen| seen.id.clone())
                .collect()
        };
        assert_eq!(
            ids("bios"),
            ["bios"],
            "not the inventory's own BIOS, whose version is written otherwise"
        );
        assert_eq!(ids("BIOS"), ["BIOS"]);
        assert_eq!(
            ids("hgx_fw_gpu_*"),
            ["HGX_FW_GPU_SXM_1", "HGX_FW_GPU_SXM_2"]
        );
        assert_eq!(ids("embedded nic"), ["7"], "by its name where no id fits");
        assert_eq!(ids("HGX_FW_GPU"), [] as [&str; 0]);
        assert!(
            fits("a*b*c", "aXbYc") && !fits("a*b*c", "aXc") && !fits("a*a", "a") && fits("*", "")
        );
    }

    #[test]
    fn what_differs_has_both_values_and_what_was_not_seen_is_unknown() {
        let wanted = Wanted {
            firmware: vec![
                firmware("bios", "2.1"),
                firmware("HGX_FW_GPU_*", "96.00"),
                firmware("nvswitch", "1.0"),
            ],
            bios: [
                ("SriovGlobalEnable", BiosValue::Text("Enabled".into())),
                ("NumaNodes", BiosValue::Number(2)),
                ("Turbo", BiosValue::Flag(true)),
                ("Absent", BiosValue::Number(1)),
            ]
            .map(|(name, value)| (name.to_owned(), value))
            .into(),
        };
        let told = wanted.compare(Some(&inventory()));
        let differing: Vec<String> = told
            .iter()
            .filter(|one| one.differs())
            .map(ToString::to_string)
            .collect();
        assert_eq!(
            differing,
            [
                "firmware HGX_FW_GPU_SXM_2 is 95.00, wanted 96.00",
                "bios SriovGlobalEnable is Disabled, wanted Enabled"
            ]
        );
        let unknown: Vec<&str> = told
            .iter()
            .filter(|one| one.found.is_none())
            .map(|one| one.item.as_str())
            .collect();
        assert_eq!(unknown, ["firmware nvswitch", "bios Absent"]);
        assert_eq!(told.len(), 8, "each of two GPUs is one thing");
        assert!(
            wanted.compare(None).iter().all(|one| one.found.is_none()),
            "a BMC that is not heard says nothing"
        );
    }

    #[test]
    fn a_value_is_sent_as_the_bmc_writes_it() {
        let text = BiosValue::Text("1".into());
        assert_eq!(
            BiosValue::Number(2).like(&text),
            BiosValue::Text("2".into())
        );
        assert_eq!(
            BiosValue::Number(2).like(&BiosValue::Number(1)),
            BiosValue::Number(2)
        );
        let read: BTreeMap<String, BiosValue> =
            serde_json::from_str(r#"{"a": true, "b": 3, "c": "On"}"#).expect("the three types");
        assert_eq!(read["a"], BiosValue::Flag(true));
        assert_eq!(read["b"], BiosValue::Number(3));
    }
}
