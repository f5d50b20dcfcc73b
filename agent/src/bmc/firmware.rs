//! Firmware and BIOS through a BMC. IPMI tells neither.

use std::collections::BTreeMap;

use muster_core::firmware::{BiosValue, BmcInventory};

use super::error::BmcError;
use super::redfish::Redfish;
use super::system::{Bmc, Driver};
use super::view::TaskView;

impl Bmc {
    /// What it says of firmware and BIOS; what of it could not be read stands in it.
    ///
    /// # Errors
    /// [`BmcError`] when nothing could be read, [`BmcError::Unsupported`] by IPMI.
    pub async fn inventory(&self) -> Result<BmcInventory, BmcError> {
        self.redfish()?.inventory().await
    }

    /// Sets BIOS attributes for the next boot. To be asked twice does nothing more.
    ///
    /// # Errors
    /// [`BmcError::NothingHappened`] when it took them and shows other ones as pending.
    pub async fn set_bios(&self, wanted: &BTreeMap<String, BiosValue>) -> Result<(), BmcError> {
        self.redfish()?.set_bios(wanted).await
    }

    /// Has it fetch an image and update by it, these members of its inventory where they are known; the task to follow. Never sent twice by itself:
    /// after [`BmcError::Timeout`] look at its tasks first.
    ///
    /// # Errors
    /// [`BmcError::Unsupported`] when it cannot.
    pub async fn update(&self, image: &str, parts: &[String]) -> Result<Option<String>, BmcError> {
        self.redfish()?.update(image, parts).await
    }

    /// How far a task is.
    ///
    /// # Errors
    /// [`BmcError`]
    pub async fn task(&self, path: &str) -> Result<TaskView, BmcError> {
        self.redfish()?.task(path).await
    }

    /// The tasks that are under way, whoever began them.
    ///
    /// # Errors
    /// [`BmcError`]
    pub async fn running_tasks(&self) -> Result<Vec<String>, BmcError> {
        self.redfish()?.running_tasks().await
    }

    fn redfish(&self) -> Result<&Redfish, BmcError> {
        match &self.driver {
            Driver::Redfish(bmc) => Ok(bmc),
            Driver::Ipmi(_) => Err(BmcError::Unsupported {
                what: "it speaks IPMI, which tells no firmware and no BIOS settings".into(),
            }),
        }
    }
}
