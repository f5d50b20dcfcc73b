//! Slurm through its own programs, which every version has and which speak to any controller; REST can neither add nodes nor, in Debian 12,
//! change any.
//!
//! Level-triggered: each operation looks at what the controller knows and mends the difference, so it may be dropped or repeated anywhere.

mod command; // Runs scontrol, sinfo, squeue
mod controller; // Makes the controller know the right nodes
mod error; // What can go wrong
mod includes; // The included files
mod jobs; // Who still runs on a node
mod out; // Nodes that take no jobs
#[cfg(test)]
mod tests;
mod view; // A node as its controller sees it

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use muster_core::clusters::{MEASURED, SlurmCluster, SlurmNode};

pub use self::error::SlurmError;
pub use self::view::{BaseState, NodeView, OUR_PREFIX};
use crate::watch::{Stopped, Watch};

/// Characters of a drain's reason.
const REASON_CHARS: usize = 200;

/// How long things may take.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// One program.
    pub command: Duration,
    /// Between two looks.
    pub poll: Duration,
    /// A controller that was restarted must be back within this.
    pub restart: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            command: Duration::from_secs(20),
            poll: Duration::from_secs(2),
            restart: Duration::from_mins(1),
        }
    }
}

/// Every controller this process talks to: one writer at a time per directory of included files.
#[derive(Clone, Debug, Default)]
pub struct Controllers {
    limits: Limits,
    memberships: Arc<Mutex<HashMap<String, Arc<Membership>>>>,
}

/// What this process knows of one directory of included files.
#[derive(Debug, Default)]
struct Membership {
    /// Held while files are written and taken over.
    writer: tokio::sync::Mutex<()>,
    /// Held while the server is asked for a list.
    asking: tokio::sync::Mutex<()>,
    /// The newest list seen, with its revision. Jobs overlap: one that waits longer than the next took to arrive must not put its own, older
    /// list back.
    newest: Mutex<Option<(i64, Arc<[SlurmNode]>)>>,
}

impl Controllers {
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            memberships: Arc::default(),
        }
    }

    /// A handle on one cluster's controller; nothing is asked yet.
    pub fn open(&self, cluster: &SlurmCluster) -> Controller {
        let mut memberships = self
            .memberships
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let membership = Arc::clone(memberships.entry(cluster.include_dir.clone()).or_default());
        Controller {
            cluster: cluster.clone(),
            limits: self.limits,
            membership,
        }
    }
}

/// One cluster's controller.
#[derive(Clone, Debug)]
pub struct Controller {
    cluster: SlurmCluster,
    limits: Limits,
    membership: Arc<Membership>,
}

impl Controller {
    /// Notes a list of members as of a revision. From here on nothing writes an older one, whatever list it was called with.
    pub fn note_members(&self, revision: i64, nodes: &[SlurmNode]) {
        let mut newest = self
            .membership
            .newest
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if newest.as_ref().is_none_or(|(known, _)| *known <= revision) {
            *newest = Some((revision, nodes.into()));
        }
    }

    /// Waits until nobody else asks for a list of this cluster's members; held until it is dropped.
    pub async fn asking(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.membership.asking.lock().await
    }

    /// The newest list seen, when it is of this revision or a later one.
    pub fn members_since(&self, revision: i64) -> Option<Arc<[SlurmNode]>> {
        let newest = self
            .membership
            .newest
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        newest
            .as_ref()
            .filter(|(known, _)| *known >= revision)
            .map(|(_, nodes)| Arc::clone(nodes))
    }

    /// Makes `name` a node that takes jobs: writes `nodes` (all of the cluster's, `name` among them), has them taken over, and waits until the
    /// controller's own view of `name` is clean. Lifts a drain of ours, never anybody else's. Returns that view.
    ///
    /// # Errors
    /// [`SlurmError::DeadlinePassed`] with what the controller says, or at once what no waiting mends.
    pub async fn admit(
        &self,
        nodes: &[SlurmNode],
        name: &str,
        watch: &Watch,
    ) -> Result<NodeView, SlurmError> {
        self.take_into_use(nodes, name, None, watch).await
    }

    /// As [`admit`](Self::admit), for a member that was held back with this reason: no other drain is lifted, also none of ours. Its health check may have
    /// found it unfit meanwhile, or a person may have drained it: it was given back all the same, and stays out for them. One that `nodes` does not have is
    /// listed by somebody else, as a machine that was adopted: that drain is lifted, and nothing else of it looked at.
    ///
    /// # Errors
    /// As [`admit`](Self::admit)'s.
    pub async fn give_back(
        &self,
        nodes: &[SlurmNode],
        name: &str,
        ours: &str,
        watch: &Watch,
    ) -> Result<NodeView, SlurmError> {
        self.take_into_use(nodes, name, Some(&our_reason(ours)), watch)
            .await
    }

    async fn take_into_use(
        &self,
        nodes: &[SlurmNode],
        name: &str,
        lifts: Option<&str>,
        watch: &Watch,
    ) -> Result<NodeView, SlurmError> {
        let wanted = nodes.iter().find(|node| node.name == name);
        let mut reconfigured = false;
        loop {
            let step = match (wanted, lifts) {
                (Some(wanted), _) => {
                    self.admit_step(nodes, wanted, lifts, &mut reconfigured, watch)
                        .await
                }
                (None, Some(ours)) => self.lift_step(name, ours).await,
                (None, None) => Err(SlurmError::NotListed { name: name.into() }),
            };
            let last = match step {
                Ok(Ok(view)) => return Ok(view),
                Ok(Err(unclean)) => unclean,
                Err(error) if patient(&error) => error.to_string(),
                Err(error) => return Err(error),
            };
            watch.waiting_for(format!("waiting for Slurm to see {name} clean: {last}"));
            self.pause(watch, &last).await?;
        }
    }

    /// The clean view, or why it is not clean yet.
    async fn admit_step(
        &self,
        nodes: &[SlurmNode],
        wanted: &SlurmNode,
        lifts: Option<&str>,
        reconfigured: &mut bool,
        watch: &Watch,
    ) -> Result<Result<NodeView, String>, SlurmError> {
        self.load(nodes, None, watch).await?;
        let Some(view) = self.view(&wanted.name).await? else {
            return Ok(Err("the controller does not know it".into()));
        };
        let complaints = view.complaints(wanted);
        let others =
            lifts.is_some_and(|ours| view.draining() && view.reason.as_deref() != Some(ours));
        if complaints.is_empty() || others {
            return Ok(Ok(view));
        }
        if view.ours_to_resume() {
            self.scontrol(&[
                "update",
                &format!("nodename={}", wanted.name),
                "state=resume",
            ])
            .await?;
        } else if !view.misconfigured(wanted).is_empty() && !*reconfigured {
            // An earlier attempt ended between writing the files and having them read.
            self.reconfigure().await?;
            *reconfigured = true;
        }
        Ok(Err(complaints.join("; ")))
    }

    /// The view of a node that somebody else lists, once our drain of it is lifted; or that it was just asked for.
    async fn lift_step(
        &self,
        name: &str,
        ours: &str,
    ) -> Result<Result<NodeView, String>, SlurmError> {
        let view = self
            .view(name)
            .await?
            .ok_or_else(|| SlurmError::NotListed { name: name.into() })?;
        if !view.draining() || view.reason.as_deref() != Some(ours) {
            return Ok(Ok(view));
        }
        self.scontrol(&["update", &format!("nodename={name}"), "state=resume"])
            .await?;
        Ok(Err("its drain was lifted just now".into()))
    }

    /// Lets no new job start on `name` and waits until none runs there. A drain that is there already keeps its reason, but for one that was to last as
    /// long as a measurement: it is lifted by this reason from now on. A node the controller does not know has no jobs.
    ///
    /// # Errors
    /// [`SlurmError::DeadlinePassed`] with the jobs that still run.
    pub async fn drain(&self, name: &str, reason: &str, watch: &Watch) -> Result<(), SlurmError> {
        includes::word("node name", name)?;
        let reason = our_reason(reason);
        loop {
            let last = match self.drain_step(name, &reason).await {
                Ok(None) => return Ok(()),
                Ok(Some(busy)) => busy,
                Err(error) if patient(&error) => error.to_string(),
                Err(error) => return Err(error),
            };
            watch.waiting_for(format!("waiting for jobs to end on {name}: {last}"));
            self.pause(watch, &last).await?;
        }
    }

    /// Who still uses it, nobody when it is drained.
    async fn drain_step(&self, name: &str, reason: &str) -> Result<Option<String>, SlurmError> {
        let Some(view) = self.view(name).await? else {
            return Ok(None);
        };
        let measured = view.reason.as_deref() == Some(MEASURED) && reason != MEASURED;
        if !view.draining() || measured {
            let update = [format!("nodename={name}"), format!("reason={reason}")];
            self.scontrol(&["update", &update[0], "state=drain", &update[1]])
                .await?;
            return Ok(Some("the drain was asked for just now".into()));
        }
        let running = self.jobs_on(name).await?;
        match running.is_empty() && !view.busy() {
            true => Ok(None),
            false if running.is_empty() => Ok(Some(format!("the controller shows it {view}"))),
            false => Ok(Some(jobs::sentence(&running))),
        }
    }

    /// Makes the controller forget `name`: writes `nodes` without it, has them taken over, and waits until the controller knows no such node.
    ///
    /// # Errors
    /// [`SlurmError::InUse`] unless it is drained or down, without jobs.
    pub async fn remove(
        &self,
        nodes: &[SlurmNode],
        name: &str,
        watch: &Watch,
    ) -> Result<(), SlurmError> {
        includes::word("node name", name)?;
        if nodes.iter().any(|node| node.name == name) {
            return Err(SlurmError::InUse {
                name: name.into(),
                seen: "it is in the list of nodes to keep".into(),
            });
        }
        loop {
            let last = match self.remove_step(nodes, name, watch).await {
                Ok(true) => return Ok(()),
                Ok(false) => "the controller still lists it".to_owned(),
                Err(error) if patient(&error) => error.to_string(),
                Err(error) => return Err(error),
            };
            watch.waiting_for(format!("waiting for Slurm to forget {name}: {last}"));
            self.pause(watch, &last).await?;
        }
    }

    async fn remove_step(
        &self,
        nodes: &[SlurmNode],
        name: &str,
        watch: &Watch,
    ) -> Result<bool, SlurmError> {
        self.load(nodes, Some(name), watch).await?;
        Ok(self.view(name).await?.is_none() && !self.known_nodes().await?.contains(name))
    }

    /// What the controller says of `name`; `None` where it knows no such node.
    ///
    /// # Errors
    /// [`SlurmError`]
    pub async fn view(&self, name: &str) -> Result<Option<NodeView>, SlurmError> {
        includes::word("node name", name)?;
        match self.scontrol(&["show", "node", name]).await {
            Ok(text) => NodeView::parse(&text).map(Some),
            Err(SlurmError::Refused { said, .. }) if said.contains("not found") => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn pause(&self, watch: &Watch, last: &str) -> Result<(), SlurmError> {
        watch
            .pause(self.limits.poll)
            .await
            .map_err(|stopped| match stopped {
                Stopped::Cancelled => SlurmError::Cancelled,
                Stopped::DeadlinePassed => SlurmError::DeadlinePassed {
                    seen: last.to_owned(),
                },
            })
    }
}

/// Whether a wait goes on over this error: the controller is away for a moment.
fn patient(error: &SlurmError) -> bool {
    matches!(
        error,
        SlurmError::Unreachable { .. } | SlurmError::Timeout { .. }
    )
}

/// One line, not long, and known as ours.
fn our_reason(reason: &str) -> String {
    let line = reason.split_whitespace().collect::<Vec<_>>().join(" ");
    let line = line
        .strip_prefix(OUR_PREFIX)
        .map_or(line.as_str(), str::trim_start);
    format!("{OUR_PREFIX} {line}")
        .chars()
        .filter(|c| !c.is_control())
        .take(REASON_CHARS)
        .collect()
}
