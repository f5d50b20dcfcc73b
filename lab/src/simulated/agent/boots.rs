//! Jobs for booting a machine and for adopting a machine.

use muster_core::ids::PermitId;
use muster_core::wire::adopt::Adopt;
use muster_core::wire::job::{BootLive, Job};
use muster_core::wire::login::Login;
use muster_core::wire::result::JobResult;

use super::super::machine::Running;
use super::{Agent, Bad, failed, fatal};

impl Agent {
    pub(super) async fn boot_live(&self, job: &Job, spec: &BootLive) -> Result<JobResult, Bad> {
        if !job
            .acts
            .iter()
            .any(|record| matches!(record.act.as_str(), "power_on" | "reset"))
        {
            let done = self.permitted(job, "power_on", spec.permit).await?;
            if let Some(done) = self.once(job, done).await? {
                self.with(job, |machine| machine.boot_live(done, &spec.nonce));
            }
        }
        self.step()?;
        self.done(job).await?;
        self.with(job, |machine| match &machine.running {
            Running::Live { nonce } if *nonce == spec.nonce => Ok(JobResult::Live {
                host_key: machine.host_key(),
                boot_id: machine.boot_id(),
                address: spec.address,
                bmc_certificate: None,
                inventory: machine.inventory(),
            }),
            _ => Err(failed("boot_window_over")),
        })
    }

    pub(super) async fn boot_disk(
        &self,
        job: &Job,
        permit: PermitId,
        login: &Login,
    ) -> Result<JobResult, Bad> {
        assert!(!login.host_key.is_empty());
        if self.with(job, |machine| machine.running != Running::Installed) && job.acts.is_empty() {
            let done = self.permitted(job, "reset", permit).await?;
            if let Some(done) = self.once(job, done).await? {
                self.with(job, |machine| machine.boot_disk(done));
            }
        }
        self.step()?;
        self.done(job).await?;
        self.with(job, |machine| match machine.running {
            Running::Installed => Ok(JobResult::Booted {
                boot_id: machine.boot_id(),
            }),
            _ => Err(failed("not_booted")),
        })
    }

    /// Adopts the machine if a person confirmed its host key; fails otherwise.
    pub(super) fn adopt(&self, job: &Job, adopt: &Adopt) -> Result<JobResult, Bad> {
        assert_eq!(adopt.secret.reveal(), "one-time");
        self.with(job, |machine| match adopt.host_key.as_deref() {
            None => Err(fatal(
                "host_key_unconfirmed",
                format!("it shows {}", machine.fingerprint()),
            )),
            Some(confirmed) if confirmed != machine.fingerprint() => {
                Err(fatal("mismatch", "another key".into()))
            }
            Some(_) => {
                let root = machine.root();
                machine
                    .disks
                    .get_mut(&root)
                    .expect("every machine has one")
                    .marker = Some(adopt.marker.clone());
                Ok(JobResult::Adopted {
                    host_key: machine.host_key(),
                    boot_id: machine.boot_id(),
                })
            }
        })
    }

    /// Reboots the machine, unless a different boot id proves a reboot by an earlier attempt.
    pub(super) async fn reboot(&self, job: &Job, permit: PermitId) -> Result<JobResult, Bad> {
        let now = self.with(job, |machine| machine.boot_id());
        let former = job
            .acts
            .iter()
            .find(|record| record.act == "reboot")
            .map(|record| record.before.clone());
        if former.as_ref().is_none_or(|before| *before == now) {
            let done = self.permitted(job, "reboot", permit).await?;
            if former.is_some() || self.once(job, done.clone()).await?.is_some() {
                self.step()?;
                self.with(job, |machine| machine.boot_disk(done));
            }
        }
        self.step()?;
        self.done(job).await?;
        Ok(JobResult::Booted {
            boot_id: self.with(job, |machine| machine.boot_id()),
        })
    }
}
