//! Firmware and BIOS settings through a BMC. IPMI supports neither.

use std::collections::BTreeMap;

use muster_core::firmware::{BiosValue, BmcInventory};

use super::error::BmcError;
use super::redfish::Redfish;
use super::system::{Bmc, Driver};
use super::view::TaskView;

impl Bmc {
    /// Reads the inventory of firmware and BIOS settings. The inventory also lists the parts that
    /// could not be read.
    ///
    /// # Errors
    /// [`BmcError`] when no part could be read, [`BmcError::Unsupported`] by IPMI.
    pub async fn inventory(&self) -> Result<BmcInventory, BmcError> {
        self.redfish()?.inventory().await
    }

    /// Sets BIOS attributes for the next boot. Repeating the request is harmless. Returns the
    /// refusal of a BMC that made the change all the same.
    ///
    /// # Errors
    /// [`BmcError::NothingHappened`] when the BMC accepted the attributes and reports other pending
    /// values.
    pub async fn set_bios(
        &self,
        wanted: &BTreeMap<String, BiosValue>,
    ) -> Result<Option<BmcError>, BmcError> {
        self.redfish()?.set_bios(wanted).await
    }

    /// Requests the BMC to fetch an image and to update the given inventory members, if known.
    /// Returns the path of the task to follow. The agent never repeats the request by itself: after
    /// [`BmcError::Timeout`] read the tasks of the BMC first.
    ///
    /// # Errors
    /// [`BmcError::Unsupported`] when the BMC cannot update by image URL.
    pub async fn update(&self, image: &str, parts: &[String]) -> Result<Option<String>, BmcError> {
        self.redfish()?.update(image, parts).await
    }

    /// Reads the progress of a task.
    ///
    /// # Errors
    /// [`BmcError`]
    pub async fn task(&self, path: &str) -> Result<TaskView, BmcError> {
        self.redfish()?.task(path).await
    }

    /// Returns the paths of the running tasks, including tasks started by others.
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
