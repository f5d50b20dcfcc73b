//! Sets firmware and BIOS settings to the values of a stack. Observe, then act: matching values are
//! left unchanged. Each update is committed before sending, and a committed update is followed
//! instead of repeated. A single committed act restarts the machine, and all requested values are
//! read back. A failed update returns the message of the BMC and is not retried automatically.

use std::collections::BTreeMap;
use std::time::Duration;

use muster_core::firmware::{
    BiosValue, BmcInventory, Compared, UpdateClass, Wanted, WantedFirmware,
};
use muster_core::ids::PermitId;
use muster_core::wire::bmc::Power;
use muster_core::wire::calls::ActReply;
use muster_core::wire::firmware::SetFirmware;
use muster_core::wire::node::{Failure, FailureCode, Progress};
use muster_core::wire::result::JobResult;

use super::power::{self, By, Started, persist};
use super::{power_off, supply};
use crate::bmc::{Bmc, BmcError, BootOnce, PowerState, TaskState};
use crate::work::context::{JobContext, failed, fatal};

/// Maximum number of requests for an operation not yet started.
const TRIES: u32 = 5;
/// Maximum number of characters in the name of an act.
const ACT_CHARS: usize = 60;

pub(super) async fn run(context: &JobContext, order: &SetFirmware) -> Result<JobResult, Failure> {
    if let Power::Manual { .. } = &order.power {
        return Ok(seen(BmcInventory::unread("it has no BMC"), Vec::new()));
    }
    let Some(permit) = order.permit else {
        return Ok(seen(heard(context, &order.power).await?, Vec::new()));
    };
    match power::by(context, &order.power).await? {
        By::Bmc(bmc) => {
            Setting {
                context,
                order,
                bmc: &bmc,
                permit,
            }
            .run()
            .await
        }
        By::Person(_) => Ok(seen(BmcInventory::unread("it has no BMC"), Vec::new())),
    }
}

/// Reads the inventory from the BMC, after checking the identity of the machine. A read-only job
/// does not wait for an unreachable BMC.
async fn heard(context: &JobContext, power: &Power) -> Result<BmcInventory, Failure> {
    Ok(match power::heard(context, power).await? {
        Ok((bmc, _)) => look(&bmc).await,
        Err(error) => BmcInventory::unread(error.to_string()),
    })
}

/// Reads the inventory of a BMC. For an unreachable BMC the inventory contains only the error, and
/// the job continues.
pub(super) async fn look(bmc: &Bmc) -> BmcInventory {
    bmc.inventory()
        .await
        .unwrap_or_else(|error| BmcInventory::unread(error.to_string()))
}

fn seen(inventory: BmcInventory, changed: Vec<String>) -> JobResult {
    JobResult::Firmware {
        inventory: Box::new(inventory),
        changed,
    }
}

/// A machine being set to the wanted values.
struct Setting<'a> {
    context: &'a JobContext,
    order: &'a SetFirmware,
    bmc: &'a Bmc,
    permit: PermitId,
}

/// The changes to make.
#[derive(Debug, Default, PartialEq)]
struct Todo {
    updates: Vec<WantedFirmware>,
    bios: BTreeMap<String, BiosValue>,
}

impl Todo {
    /// Returns the differing values with a possible change. Unknown components and components
    /// without an image are left to the gate for the comparison with the stack.
    fn of(wanted: &Wanted, seen: &BmcInventory) -> Self {
        let differs = |item: &&WantedFirmware| {
            item.image.is_some()
                && seen
                    .find(&item.component)
                    .iter()
                    .any(|seen| seen.version != item.version)
        };
        let setting = |(name, value): (&String, &BiosValue)| {
            let shown = seen.bios.get(name).filter(|shown| !shown.means(value))?;
            Some((name.clone(), value.like(shown)))
        };
        Self {
            updates: wanted.firmware.iter().filter(differs).cloned().collect(),
            bios: wanted.bios.iter().filter_map(setting).collect(),
        }
    }

    fn is_empty(&self) -> bool {
        self.updates.is_empty() && self.bios.is_empty()
    }

    fn needs_restart(&self) -> bool {
        !self.bios.is_empty()
            || self
                .updates
                .iter()
                .any(|item| item.class == UpdateClass::Reboot)
    }

    /// Returns the changes as wanted values, for the read-back.
    fn wanted(&self) -> Wanted {
        Wanted {
            firmware: self.updates.clone(),
            bios: self.bios.clone(),
        }
    }
}

impl Setting<'_> {
    async fn run(&self) -> Result<JobResult, Failure> {
        let Self {
            context,
            order,
            bmc,
            ..
        } = self;
        let before = persist(context, || bmc.inventory()).await?;
        for one in order
            .wanted
            .compare(Some(&before))
            .iter()
            .filter(|one| one.found.as_ref() != Some(&one.wanted))
        {
            context.voice.log(one.to_string());
        }
        let todo = Todo::of(&order.wanted, &before);
        if todo.is_empty() {
            return Ok(seen(before, Vec::new()));
        }
        let restarted = power::was_started(context);
        if !restarted {
            for item in &todo.updates {
                self.update(item, &before).await?;
            }
            self.set_bios(&todo.bios).await?;
        }
        if restarted || todo.needs_restart() {
            self.restart().await?;
        }
        let after = self.read_back(&todo.wanted()).await?;
        let told = todo.wanted().compare(Some(&before));
        let changed = told.iter().filter(|one| one.differs()).map(|one| {
            let was = one.found.as_deref().unwrap_or_default();
            format!("{} is {}, it was {was}", one.item, one.wanted)
        });
        Ok(seen(after, changed.collect()))
    }

    /// Updates a component and follows the BMC until the update is complete.
    async fn update(&self, item: &WantedFirmware, before: &BmcInventory) -> Result<(), Failure> {
        let Self {
            context,
            order,
            bmc,
            permit,
        } = self;
        let Some(image) = item.image else {
            return Ok(());
        };
        // Also in an attempt after the start of the update: the BMC may still read the image.
        context.hold_blob(image);
        let found = before.find(&item.component);
        let versions: Vec<String> = found
            .iter()
            .map(|seen| format!("{} {}", seen.id, seen.version))
            .collect();
        let act: String = format!("update {}", item.component)
            .chars()
            .take(ACT_CHARS)
            .collect();
        let begun = match context.former_act(&[&act]) {
            Some(_) => true,
            None => {
                supply::hold_blob(context, image).await?;
                context.redeem_power(*permit).await?;
                matches!(
                    context.start_act(&act, &versions.join(", ")).await?,
                    ActReply::Already(_)
                )
            }
        };
        let tasks = if begun {
            context.voice.log(format!(
                "an earlier attempt began to {act}; looking what came of it"
            ));
            persist(context, || bmc.running_tasks()).await?
        } else {
            let parts = found
                .iter()
                .filter(|seen| !matches!(seen.id.as_str(), "bios" | "bmc"));
            let parts: Vec<String> = parts.map(|seen| seen.id.clone()).collect();
            self.begin(&format!("{}/{}", order.images, image.hex()), &parts)
                .await?
        };
        let mut forgot = false;
        for task in &tasks {
            forgot |= self.follow(item, task).await? == TaskState::Gone;
        }
        if forgot {
            self.follow_others(item).await?;
        }
        match item.class {
            UpdateClass::Reboot => Ok(()),
            UpdateClass::None => {
                let wanted = Wanted {
                    firmware: vec![item.clone()],
                    bios: BTreeMap::new(),
                };
                self.read_back(&wanted).await.map(drop)
            }
        }
    }

    /// Sends an update and returns the tasks. A busy or unreachable BMC has not started the update,
    /// so the request is repeated. After a timeout the update may have started, so the running
    /// tasks are returned.
    async fn begin(&self, image: &str, parts: &[String]) -> Result<Vec<String>, Failure> {
        let Self { context, bmc, .. } = self;
        let mut last = None;
        for _ in 0..TRIES {
            match bmc.update(image, parts).await {
                Ok(task) => return Ok(task.into_iter().collect()),
                Err(error @ BmcError::Timeout { .. }) => {
                    context.voice.log(error.to_string());
                    return persist(context, || bmc.running_tasks()).await;
                }
                Err(error @ (BmcError::Busy { .. } | BmcError::Unreachable { .. })) => {
                    self.pause(&error).await;
                    last = Some(error);
                }
                Err(error) => {
                    return Err(fatal(
                        error.code(),
                        format!("the update was not begun: {error}"),
                    ));
                }
            }
        }
        let why = last.map_or_else(String::new, |error| error.to_string());
        Err(failed(
            FailureCode::FirmwareNotBegun,
            format!("the update was not begun, {TRIES} times: {why}"),
        ))
    }

    /// Follows the running tasks after a forgotten task: a BMC that restarted can go on under another
    /// task. A BMC that refuses its list of tasks has no task to follow.
    async fn follow_others(&self, item: &WantedFirmware) -> Result<(), Failure> {
        let Self { context, bmc, .. } = self;
        let running = persist(context, || async {
            match bmc.running_tasks().await {
                Err(error) if error.is_refusal() => Ok(Vec::new()),
                told => told,
            }
        });
        for task in &running.await? {
            self.follow(item, task).await?;
        }
        Ok(())
    }

    /// Follows a task to its end, including restarts of the BMC. Returns `Waits` for an update that
    /// goes on with the restart, and `Gone` for a task without a known end.
    async fn follow(&self, item: &WantedFirmware, task: &str) -> Result<TaskState, Failure> {
        let Self { context, bmc, .. } = self;
        let limits = context.agent.bmcs.limits();
        let watch = context.watch(limits.update);
        let mut percent = None;
        loop {
            let mut pause = limits.ask_again;
            match bmc.task(task).await {
                Ok(view) => {
                    percent = view.percent.or(percent);
                    let said = view.said.join("; ");
                    match view.state {
                        TaskState::Done => {
                            context
                                .voice
                                .log(format!("the update of {} is over: {said}", item.component));
                            return Ok(view.state);
                        }
                        TaskState::Gone => {
                            context.voice.log(format!(
                                "the BMC forgot the task of the update of {} ({said}); the version that it shows decides",
                                item.component
                            ));
                            return Ok(view.state);
                        }
                        // The update is staged and waits for the restart.
                        TaskState::Waits if item.class == UpdateClass::Reboot => {
                            return Ok(view.state);
                        }
                        TaskState::Failed => {
                            let message = format!(
                                "the BMC could not update {} to {}: {said}",
                                item.component, item.version
                            );
                            return Err(fatal(FailureCode::FirmwareUpdateFailed, message));
                        }
                        TaskState::Running | TaskState::Waits => self.progress(item, view.percent),
                    }
                    watch.waiting_for(format!("the BMC to update {} ({said})", item.component));
                }
                Err(error) if error.retryable() => {
                    pause = error.pause(pause);
                    watch.waiting_for(format!("the BMC of {} ({error})", context.job.node_name))
                }
                Err(error) => return Err(error.into()),
            }
            if watch.pause(pause).await.is_err() {
                let far = percent.map_or_else(String::new, |percent| format!(", at {percent} %"));
                let (component, within) = (&item.component, limits.update.as_secs() / 60);
                let message = format!(
                    "the BMC's task {task} to update {component} has not ended after {within} min{far}: it may still write, so cut no power before \
                     it has ended, or its maker says so"
                );
                return Err(fatal(FailureCode::FirmwareUpdateEndless, message));
            }
        }
    }

    fn progress(&self, item: &WantedFirmware, percent: Option<u64>) {
        let context = self.context;
        context.voice.progress(Progress {
            at: context.agent.clock.now(),
            message: format!("updating {} to {}", item.component, item.version),
            done: percent,
            total: percent.map(|_| 100),
            unit: percent.map(|_| "%".into()),
        });
    }

    /// Requests BIOS settings for the next restart. If the BMC drops the settings, the job fails
    /// before a useless restart.
    async fn set_bios(&self, wanted: &BTreeMap<String, BiosValue>) -> Result<(), Failure> {
        if wanted.is_empty() {
            return Ok(());
        }
        self.context.redeem_power(self.permit).await?;
        let mut last = None;
        for _ in 0..TRIES {
            match self.bmc.set_bios(wanted).await {
                Ok(None) => return Ok(()),
                Ok(Some(refusal)) => {
                    self.context
                        .voice
                        .log(format!("BIOS settings are set, although {refusal}"));
                    return Ok(());
                }
                Err(error @ BmcError::NothingHappened { .. }) => {
                    return Err(fatal(FailureCode::BiosSettingsDropped, error.to_string()));
                }
                Err(error) if error.retryable() => {
                    self.pause(&error).await;
                    last = Some(error);
                }
                Err(error) => return Err(fatal(error.code(), format!("BIOS settings: {error}"))),
            }
        }
        let why = last.map_or_else(String::new, |error| error.to_string());
        Err(failed(
            FailureCode::BiosNotSet,
            format!("the BIOS settings were not taken, {TRIES} times: {why}"),
        ))
    }

    /// Restarts the machine through its firmware. A running system is shut down gracefully first. A
    /// restart committed by an earlier attempt is only completed.
    async fn restart(&self) -> Result<(), Failure> {
        let Self {
            context,
            order,
            bmc,
            permit,
        } = self;
        if !power::was_started(context) {
            // The machine is switched off before the start, because firmware needs a cold start and
            // a running system must not lose work.
            power_off::off_by_bmc(context, bmc, order.login.as_ref(), *permit).await?;
        }
        let (started, view) = power::start(context, bmc, *permit, BootOnce::None).await?;
        match (started, view.power) {
            (Started::Earlier { .. }, PowerState::Off) => {
                power::turn_on(context, bmc, *permit).await
            }
            (Started::Earlier { .. } | Started::Now, _) => Ok(()),
        }
    }

    /// Polls until all changed values read back as wanted.
    async fn read_back(&self, wanted: &Wanted) -> Result<BmcInventory, Failure> {
        let Self { context, bmc, .. } = self;
        let limits = context.agent.bmcs.limits();
        let watch = context.watch(limits.boot);
        loop {
            let seen = look(bmc).await;
            let left: Vec<Compared> = wanted
                .compare(Some(&seen))
                .into_iter()
                .filter(|one| one.found.as_ref() != Some(&one.wanted))
                .collect();
            let Some(first) = left.first() else {
                return Ok(seen);
            };
            watch.waiting_for(format!(
                "the BMC to show what was set: {first}, and {} more",
                left.len() - 1
            ));
            if watch.pause(limits.ask_again).await.is_err() {
                let told: Vec<String> = left.iter().take(10).map(ToString::to_string).collect();
                let (told, within) = (told.join("; "), limits.boot.as_secs() / 60);
                let message =
                    format!("after {within} min the BMC, which took it all, still shows: {told}");
                return Err(fatal(FailureCode::FirmwareUnchanged, message));
            }
        }
    }

    async fn pause(&self, error: &BmcError) {
        let limits = self.context.agent.bmcs.limits();
        self.context.voice.waiting_for(format!(
            "the BMC of {} ({error})",
            self.context.job.node_name
        ));
        let after = error.pause(limits.ask_again);
        tokio::time::sleep(after.max(Duration::from_millis(1))).await;
    }
}

#[cfg(test)]
mod tests {
    use muster_core::firmware::SeenFirmware;
    use muster_core::values::Digest;

    use super::*;

    #[test]
    fn only_what_differs_and_can_be_set_is_done() {
        let inventory = BmcInventory {
            firmware: [
                ("bmc", "1.0"),
                ("HGX_1", "96"),
                ("HGX_2", "95"),
                ("nic", "28"),
            ]
            .map(|(id, version)| SeenFirmware {
                id: id.into(),
                name: String::new(),
                version: version.into(),
            })
            .into(),
            bios: [
                ("Sriov".to_owned(), BiosValue::Text("Disabled".into())),
                ("Nps".to_owned(), BiosValue::Text("1".into())),
            ]
            .into(),
            unread: vec![],
        };
        let want = |component: &str, version: &str, image: Option<&str>| WantedFirmware {
            component: component.into(),
            version: version.into(),
            image: image.map(|image| Digest::of(image.as_bytes())),
            class: UpdateClass::default(),
        };
        let wanted = Wanted {
            firmware: vec![
                want("bmc", "1.0", Some("a")),
                want("HGX_*", "96", Some("b")),
                want("nic", "29", None),
                want("nvswitch", "1", Some("c")),
            ],
            bios: [
                ("Sriov", BiosValue::Text("Enabled".into())),
                ("Nps", BiosValue::Number(4)),
                ("Gone", BiosValue::Flag(true)),
            ]
            .map(|(name, value)| (name.to_owned(), value))
            .into(),
        };
        let todo = Todo::of(&wanted, &inventory);
        let components: Vec<&str> = todo
            .updates
            .iter()
            .map(|item| item.component.as_str())
            .collect();
        assert_eq!(
            components,
            ["HGX_*"],
            "one of two GPUs is old; without an image, or unseen, nothing is done"
        );
        assert_eq!(
            todo.bios["Nps"],
            BiosValue::Text("4".into()),
            "as the BMC writes it"
        );
        assert!(!todo.bios.contains_key("Gone") && todo.needs_restart());
        let only_bmc = Todo {
            updates: vec![WantedFirmware {
                class: UpdateClass::None,
                ..want("bmc", "2", Some("a"))
            }],
            ..Todo::default()
        };
        assert!(!only_bmc.needs_restart() && !only_bmc.is_empty());
    }
}
