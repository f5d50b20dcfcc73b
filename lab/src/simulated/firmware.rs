//! Firmware and BIOS of simulated machines, by the rules of the real agent. Correct settings are
//! left alone. The agent commits the restart before the restart happens. A later attempt reads the
//! current state from the machine.

use muster_core::firmware::{BmcInventory, Wanted};
use muster_core::wire::firmware::SetFirmware;
use muster_core::wire::job::Job;
use muster_core::wire::result::JobResult;

use super::agent::{Agent, Bad};
use super::habits::What;
use super::machine::{Done, Machine};

impl Agent {
    pub(super) async fn firmware(&self, job: &Job, order: &SetFirmware) -> Result<JobResult, Bad> {
        self.takes(job, What::Inventory).await?;
        let mut changed = Vec::new();
        if let Some(permit) = order.permit {
            changed = self.with(job, |machine| machine.differing(&order.wanted));
            let begun = job
                .acts
                .iter()
                .any(|record| matches!(record.act.as_str(), "power_on" | "reset"));
            if !changed.is_empty() {
                let done = self.permitted(job, "power_on", permit).await?;
                // A restart begun by an earlier attempt but not completed left the machine off. In
                // this case the machine is only switched on.
                let done = if begun {
                    Some(done)
                } else {
                    self.once(job, done).await?
                };
                if let Some(done) = done {
                    self.with(job, |machine| machine.set_firmware(done, &order.wanted));
                }
            }
            self.step()?;
            self.done(job).await?;
        }
        let said = self.with(job, |machine| machine.firmware.clone());
        let inventory = said.unwrap_or_else(|| BmcInventory::unread("it has no update service"));
        Ok(JobResult::Firmware {
            inventory: Box::new(inventory),
            changed,
        })
    }
}

impl Machine {
    /// The inventory reported by the BMC after a boot; `None` for a BMC without an update service.
    pub(super) fn inventory(&self) -> Option<Box<BmcInventory>> {
        self.firmware.clone().map(Box::new)
    }

    /// Lists the components and settings that differ and can be set. Firmware without an image
    /// cannot be set.
    fn differing(&self, wanted: &Wanted) -> Vec<String> {
        let settable = Wanted {
            firmware: wanted
                .firmware
                .iter()
                .filter(|item| item.image.is_some())
                .cloned()
                .collect(),
            bios: wanted.bios.clone(),
        };
        let compared = settable.compare(self.firmware.as_ref());
        compared
            .iter()
            .filter(|one| one.differs())
            .map(ToString::to_string)
            .collect()
    }

    /// Boots the machine, then sets the wanted versions and settings in the BMC's inventory.
    fn set_firmware(&mut self, done: Done, wanted: &Wanted) {
        self.boot_disk(done);
        let Some(said) = &mut self.firmware else {
            return;
        };
        for item in wanted.firmware.iter().filter(|item| item.image.is_some()) {
            let found: Vec<String> = said
                .find(&item.component)
                .iter()
                .map(|seen| seen.id.clone())
                .collect();
            for seen in said
                .firmware
                .iter_mut()
                .filter(|seen| found.contains(&seen.id))
            {
                seen.version.clone_from(&item.version);
            }
        }
        for (name, value) in &wanted.bios {
            if let Some(shown) = said.bios.get_mut(name) {
                shown.clone_from(value);
            }
        }
    }
}
