//! The boot override by Redfish (DSP0268, `Boot` of `ComputerSystem`). BMCs differ in the place, in
//! the words, and in the handling of the mode: `docs/bmcs.md` lists the ways with their sources.
//! Only the override read back counts, after a success and after a refusal.

use muster_core::facts::Firmware;
use serde_json::{Value, json};

use super::client::Redfish;
use super::links::link;
use super::system::text;
use crate::bmc::error::BmcError;
use crate::bmc::read_back::read_back;
use crate::bmc::view::{BootOnce, BootOverride, OverrideEnabled};

/// A resource with a `Boot` object.
#[derive(Debug)]
struct Place {
    path: String,
    /// The system, for a settings object. The change may show on either.
    system: Option<String>,
    /// The mode shown before the change.
    mode: Option<Firmware>,
}

/// The result of a request.
#[derive(Debug)]
enum Tried {
    Set(BootOverride),
    Refused,
    Ignored,
    /// The target is set, and the mode is another than before.
    OtherMode(BootOverride),
}

/// Reasons of the failed requests.
#[derive(Debug, Default)]
struct Reasons {
    refused: Option<BmcError>,
    ignored: Option<BmcError>,
    other_mode: Option<BmcError>,
}

impl Reasons {
    /// Returns the error after all ways.
    fn end(self) -> BmcError {
        let none = || BmcError::Unsupported {
            what: "it offers no way to set the next boot".into(),
        };
        let told = self.other_mode.or(self.ignored).or(self.refused);
        told.unwrap_or_else(none)
    }
}

/// Returns the request bodies for a boot target, best first. Some BMCs refuse or ignore a cleared
/// override. The bodies disable it with a target, then without a target, and finally set the disk
/// as target.
fn list_bodies(boot: BootOnce) -> Vec<Value> {
    match boot {
        BootOnce::Pxe => {
            vec![json!({"BootSourceOverrideEnabled": "Once", "BootSourceOverrideTarget": "Pxe"})]
        }
        BootOnce::None => vec![
            json!({"BootSourceOverrideEnabled": "Disabled", "BootSourceOverrideTarget": "None"}),
            json!({"BootSourceOverrideEnabled": "Disabled"}),
            json!({"BootSourceOverrideEnabled": "Continuous", "BootSourceOverrideTarget": "Hdd"}),
        ],
    }
}

impl Redfish {
    /// Sets the target of the next boot, on the system first, then on its settings object.
    pub(in crate::bmc) async fn set_boot_once(
        &self,
        boot: BootOnce,
    ) -> Result<BootOverride, BmcError> {
        let _alone = self.writer().await;
        let path = self.system_path().await?;
        let system = self.get(path).await?;
        let place = Place {
            path: path.to_owned(),
            system: None,
            mode: read_override(&system["Boot"]).mode,
        };
        let mut reasons = Reasons::default();
        if let Some(set) = self.try_place(&place, boot, &mut reasons).await? {
            return Ok(set);
        }
        if let Some(place) = self.settings_of(&system, place, &reasons).await?
            && let Some(set) = self.try_place(&place, boot, &mut reasons).await?
        {
            return Ok(set);
        }
        Err(reasons.end())
    }

    /// Returns the settings object of a system, if the change may belong there. After an ignored
    /// change only an object that shows an override counts: a pending object of another purpose
    /// would hold the change back until a second restart.
    async fn settings_of(
        &self,
        system: &Value,
        place: Place,
        reasons: &Reasons,
    ) -> Result<Option<Place>, BmcError> {
        let Ok(path) = link(&system["@Redfish.Settings"]["SettingsObject"]) else {
            return Ok(None);
        };
        if reasons.other_mode.is_some() {
            return Ok(None);
        }
        let boot = match self.get(&path).await {
            Ok(mut settings) => settings["Boot"].take(),
            Err(error) if error.is_refusal() || reasons.ignored.is_some() => return Ok(None),
            Err(error) => return Err(error),
        };
        let shown = ["BootSourceOverrideTarget", "BootSourceOverrideEnabled"];
        if reasons.ignored.is_some() && !shown.iter().any(|name| boot.get(name).is_some()) {
            return Ok(None);
        }
        Ok(Some(Place {
            path,
            system: Some(place.path),
            mode: place.mode.or(read_override(&boot).mode),
        }))
    }

    /// Tries each body. A body that is refused, or changes the mode, is repeated with the mode
    /// shown before: some BMCs fall back to another mode without it (Redfishtool pull request
    /// 106), some refuse a body that names it (community.general issue 3509).
    async fn try_place(
        &self,
        place: &Place,
        boot: BootOnce,
        reasons: &mut Reasons,
    ) -> Result<Option<BootOverride>, BmcError> {
        for body in list_bodies(boot) {
            let cleared = match self.try_body(place, boot, &body, reasons).await? {
                Tried::Set(set) => return Ok(Some(set)),
                Tried::Ignored => continue,
                Tried::Refused => None,
                Tried::OtherMode(set) => Some(set).filter(is_disabled),
            };
            let Some(mode) = place.mode else { continue };
            let mut named = body;
            named["BootSourceOverrideMode"] = name_mode(mode).into();
            match self.try_body(place, boot, &named, reasons).await? {
                Tried::Set(set) => return Ok(Some(set)),
                Tried::OtherMode(set) if is_disabled(&set) => return Ok(Some(set)),
                Tried::Ignored | Tried::Refused if cleared.is_some() => return Ok(cleared),
                Tried::Ignored | Tried::Refused | Tried::OtherMode(_) => {}
            }
        }
        Ok(None)
    }

    async fn try_body(
        &self,
        place: &Place,
        boot: BootOnce,
        body: &Value,
        reasons: &mut Reasons,
    ) -> Result<Tried, BmcError> {
        let refusal = match self.patch(&place.path, &json!({ "Boot": body })).await {
            Ok(()) => None,
            Err(error) if error.is_refusal() => Some(error),
            Err(error @ BmcError::Garbage { .. }) => Some(error),
            Err(error) => return Err(error),
        };
        let seen = match &refusal {
            None => read_back(self.limits(), boot, || self.read_boot(place, boot)).await?,
            // Some BMCs answer with an error after the change (community.general issue 5091).
            Some(refusal) => {
                let seen = self.read_boot(place, boot).await?;
                boot.holds(&seen)
                    .then_some(seen)
                    .ok_or_else(|| refusal.clone())
            }
        };
        let seen = match (seen, refusal.is_some()) {
            (Ok(seen), _) => seen,
            (Err(refused), true) => {
                reasons.refused.get_or_insert(refused);
                return Ok(Tried::Refused);
            }
            (Err(ignored), false) => {
                reasons.ignored = Some(ignored);
                return Ok(Tried::Ignored);
            }
        };
        let set = BootOverride {
            refusal: refusal.map(|refusal| refusal.to_string()),
            ..seen
        };
        match (place.mode, set.mode) {
            (Some(before), Some(mode)) if before != mode => {
                if !is_disabled(&set) {
                    reasons.other_mode = Some(refuse_mode(before, mode));
                }
                Ok(Tried::OtherMode(set))
            }
            (Some(_) | None, Some(_) | None) => Ok(Tried::Set(set)),
        }
    }

    /// Reads the override where it was written; for a settings object, on the system too.
    async fn read_boot(&self, place: &Place, boot: BootOnce) -> Result<BootOverride, BmcError> {
        let seen = read_override(&self.get(&place.path).await?["Boot"]);
        match &place.system {
            Some(system) if !boot.holds(&seen) => {
                Ok(read_override(&self.get(system).await?["Boot"]))
            }
            Some(_) | None => Ok(seen),
        }
    }
}

/// Returns whether the override is disabled, so that its mode is not used.
fn is_disabled(set: &BootOverride) -> bool {
    set.enabled == OverrideEnabled::Disabled
}

fn refuse_mode(before: Firmware, mode: Firmware) -> BmcError {
    let (before, mode) = (name_mode(before), name_mode(mode));
    BmcError::Unsupported {
        what: format!(
            "keep the mode {before} of a boot override: it would boot by {mode}, and the override stays set; set the boot mode in its BIOS settings"
        ),
    }
}

/// Returns the name of a mode in Redfish.
fn name_mode(mode: Firmware) -> &'static str {
    match mode {
        Firmware::Uefi => "UEFI",
        Firmware::Bios => "Legacy",
    }
}

fn read_override(boot: &Value) -> BootOverride {
    BootOverride {
        enabled: match boot["BootSourceOverrideEnabled"].as_str() {
            Some("Disabled") => OverrideEnabled::Disabled,
            Some("Once") => OverrideEnabled::Once,
            Some("Continuous") => OverrideEnabled::Continuous,
            Some(_) | None => OverrideEnabled::Unknown,
        },
        target: text(&boot["BootSourceOverrideTarget"]).unwrap_or_default(),
        mode: match boot["BootSourceOverrideMode"].as_str() {
            Some("UEFI") => Some(Firmware::Uefi),
            Some("Legacy") => Some(Firmware::Bios),
            Some(_) | None => None,
        },
        refusal: None,
    }
}
