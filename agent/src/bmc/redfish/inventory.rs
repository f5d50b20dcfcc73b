//! Reads the firmware and BIOS inventory of a BMC (DSP2046, `SoftwareInventory`, `Bios`). A failed
//! part does not fail the others: the inventory lists the failed parts.

use muster_core::firmware::{BiosValue, BmcInventory, SeenFirmware, is_secret};
use serde_json::Value;
use tokio::time::Instant;

use super::client::Redfish;
use super::links::{link, listed, next_page};
use crate::bmc::error::{BmcError, shortened};

/// Maximum number of inventory members. A machine with eight GPUs lists a hundred.
const FIRMWARE: usize = 256;
/// Maximum number of BIOS attributes. Vendors have about a thousand.
const ATTRIBUTES: usize = 4096;
/// Maximum number of pages of an inventory.
const PAGES: usize = 20;
/// Id prefixes of iDRAC members for firmware not installed: previous versions and available
/// versions.
const NOT_THERE: [&str; 2] = ["Previous-", "Available-"];

impl Redfish {
    pub(in crate::bmc) async fn inventory(&self) -> Result<BmcInventory, BmcError> {
        let until = Instant::now() + self.limits().inventory;
        let system = self.ask(self.system_path().await?).await?;
        let mut seen = BmcInventory::default();
        seen.firmware.extend(own(
            "bios",
            "ComputerSystem.BiosVersion",
            &system["BiosVersion"],
        ));
        if let Some(manager) = system["Links"]["ManagedBy"].get(0) {
            match self.ask_link(manager).await {
                Ok(manager) => {
                    seen.firmware.extend(own(
                        "bmc",
                        "Manager.FirmwareVersion",
                        &manager["FirmwareVersion"],
                    ));
                }
                Err(error) => seen
                    .unread
                    .push(shortened(&format!("the BMC's own version: {error}"))),
            }
        }
        match self.bios_attributes(&system).await {
            Ok(attributes) => read_attributes(&attributes, &mut seen),
            Err(error) => seen
                .unread
                .push(shortened(&format!("BIOS attributes: {error}"))),
        }
        if let Err(error) = self.list_firmware(until, &mut seen).await {
            seen.unread
                .push(shortened(&format!("the firmware inventory: {error}")));
        }
        Ok(seen)
    }

    async fn bios_attributes(&self, system: &Value) -> Result<Value, BmcError> {
        match &system["Bios"] {
            Value::Null => Err(BmcError::Unsupported {
                what: "its system names no BIOS".into(),
            }),
            bios => Ok(self.ask_link(bios).await?["Attributes"].take()),
        }
    }

    /// Reads all members of the inventory. Uses a single request if the BMC announces `$expand`,
    /// otherwise a request per member.
    async fn list_firmware(&self, until: Instant, seen: &mut BmcInventory) -> Result<(), BmcError> {
        let root = self.ask("/redfish/v1").await?;
        let service = match &root["UpdateService"] {
            Value::Null => {
                return Err(BmcError::Unsupported {
                    what: "it has no update service".into(),
                });
            }
            service => self.ask_link(service).await?,
        };
        let list = match &service["FirmwareInventory"] {
            Value::Null => {
                return Err(BmcError::Unsupported {
                    what: "it lists no firmware".into(),
                });
            }
            list => link(list)?,
        };
        let whole = root["ProtocolFeaturesSupported"]["ExpandQuery"]["NoLinks"] == true;
        let first = match whole {
            // A BMC that fails on its announced `$expand` gets the plain request.
            true => match self.ask(&format!("{list}?$expand=.($levels=1)")).await {
                Ok(page) => page,
                Err(_) => self.ask(&list).await?,
            },
            false => self.ask(&list).await?,
        };
        let mut page = first;
        for _ in 0..PAGES {
            for member in listed(&page)? {
                if seen.firmware.len() >= FIRMWARE {
                    seen.unread
                        .push(format!("the firmware inventory beyond {FIRMWARE} members"));
                    return Ok(());
                }
                if Instant::now() >= until {
                    let within = self.limits().inventory.as_secs();
                    seen.unread.push(format!(
                        "the rest of the firmware inventory: it did not come within {within} s"
                    ));
                    return Ok(());
                }
                self.member(member, seen).await;
            }
            match next_page(&page)? {
                Some(next) => page = self.ask(&next).await?,
                None => return Ok(()),
            }
        }
        seen.unread
            .push(format!("the firmware inventory beyond {PAGES} pages"));
        Ok(())
    }

    async fn member(&self, member: &Value, seen: &mut BmcInventory) {
        if let Some(firmware) = firmware(member) {
            return seen.firmware.extend(firmware);
        }
        match self.ask_link(member).await {
            Ok(whole) => seen.firmware.extend(firmware(&whole).flatten()),
            Err(error) => seen.unread.push(shortened(&format!(
                "a member of the firmware inventory: {error}"
            ))),
        }
    }

    async fn ask_link(&self, to: &Value) -> Result<Value, BmcError> {
        self.ask(&link(to)?).await
    }

    /// Reads a resource and repeats a retryable failure once. A BMC can be busy for a moment, and
    /// the inventory is read only once a day. A longer wait than the inventory's own is not kept.
    pub(super) async fn ask(&self, path: &str) -> Result<Value, BmcError> {
        match self.get(path).await {
            Err(error) if error.retryable() => {
                let limits = self.limits();
                tokio::time::sleep(error.pause(limits.ask_again).min(limits.inventory)).await;
                self.get(path).await
            }
            answer => answer,
        }
    }
}

/// Returns the version reported by a resource for itself.
fn own(id: &str, name: &str, version: &Value) -> Option<SeenFirmware> {
    Some(SeenFirmware {
        id: id.into(),
        name: name.into(),
        version: text(version)?,
    })
}

/// Parses an embedded inventory member. Returns `None` for a plain link, and `Some(None)` for a
/// member that is not installed or has no version.
fn firmware(member: &Value) -> Option<Option<SeenFirmware>> {
    let id = text(&member["Id"])?;
    member.get("Version")?;
    if NOT_THERE.iter().any(|prefix| id.starts_with(prefix)) {
        return Some(None);
    }
    let name = text(&member["Name"]).unwrap_or_default();
    Some(text(&member["Version"]).map(|version| SeenFirmware { id, name, version }))
}

fn read_attributes(attributes: &Value, seen: &mut BmcInventory) {
    let Some(all) = attributes.as_object() else {
        return seen.unread.push("BIOS attributes: it shows none".into());
    };
    let readable = all
        .iter()
        .filter(|(name, _)| !is_secret(name))
        .filter_map(|(name, value)| {
            let value = match value {
                Value::Bool(flag) => BiosValue::Flag(*flag),
                Value::Number(number) => BiosValue::Number(number.as_i64()?),
                Value::String(text) => BiosValue::Text(shortened(text)),
                Value::Null | Value::Array(_) | Value::Object(_) => return None,
            };
            Some((shortened(name), value))
        });
    seen.bios.extend(readable.take(ATTRIBUTES));
    if all.len() > ATTRIBUTES {
        seen.unread
            .push(format!("BIOS attributes beyond {ATTRIBUTES}"));
    }
}

fn text(value: &Value) -> Option<String> {
    value
        .as_str()
        .map(str::trim)
        .filter(|text| !text.is_empty())
        .map(shortened)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Members as returned by iDRAC 9, HPE iLO 5 and an HGX baseboard.
    #[test]
    fn members_of_every_shape_are_read_and_what_is_not_installed_is_not() {
        let dell = json!({"Id": "Installed-159-2.19.1__BIOS.Setup.1-1", "Name": "BIOS", "Version": "2.19.1", "Updateable": true});
        let former = json!({"Id": "Previous-159-2.18.1__BIOS.Setup.1-1", "Name": "BIOS", "Version": "2.18.1"});
        let hpe = json!({"Id": "1", "Name": "iLO 5", "Version": " 2.72 Sep 04 2022 ", "Oem": {"Hpe": {"Targets": []}}});
        let hgx =
            json!({"Id": "HGX_FW_ERoT_GPU_SXM_1", "Name": "Software Inventory", "Version": null});
        let link = json!({"@odata.id": "/redfish/v1/UpdateService/FirmwareInventory/BMC"});
        let read = |member: &Value| {
            firmware(member).map(|found| found.map(|seen| (seen.name, seen.version)))
        };
        assert_eq!(read(&dell), Some(Some(("BIOS".into(), "2.19.1".into()))));
        assert_eq!(read(&former), Some(None));
        assert_eq!(
            read(&hpe),
            Some(Some(("iLO 5".into(), "2.72 Sep 04 2022".into())))
        );
        assert_eq!(
            read(&hgx),
            Some(None),
            "no version is known, which is not a version"
        );
        assert_eq!(read(&link), None);
    }

    #[test]
    fn attributes_keep_their_types_and_passwords_are_left_out() {
        let attributes = json!({
            "SriovGlobalEnable": "Enabled", "NumaNodesPerSocket": 4, "Turbo": true, "AssetTag": "x\u{1b}[2J",
            "SysPassword": "hunter2", "OldSetupPassword": null, "Fraction": 1.5, "Nested": {},
        });
        let mut seen = BmcInventory::default();
        read_attributes(&attributes, &mut seen);
        let names: Vec<&str> = seen.bios.keys().map(String::as_str).collect();
        assert_eq!(
            names,
            [
                "AssetTag",
                "NumaNodesPerSocket",
                "SriovGlobalEnable",
                "Turbo"
            ]
        );
        assert_eq!(seen.bios["NumaNodesPerSocket"], BiosValue::Number(4));
        assert!(!seen.bios["AssetTag"].to_string().contains('\u{1b}'));
        read_attributes(&Value::Null, &mut seen);
        assert_eq!(seen.unread, ["BIOS attributes: it shows none"]);
    }
}
