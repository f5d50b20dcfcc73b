//! Admits nodes to Slurm through the programs of Slurm, which exist in every version and work with
//! any controller. The REST API cannot add nodes, and the version in Debian 12 cannot change nodes.
//!
//! The module is level-triggered: each operation compares the state of the controller with the
//! wanted state and repairs the difference. An operation can be dropped or repeated at any point.

mod command; // Runs scontrol, sinfo, squeue
mod controller; // Updates the set of nodes in the controller
mod error; // Errors of a Slurm operation
mod hostlist; // Names of nodes in short form
mod includes; // The included files
mod jobs; // Running jobs of a node
mod out; // Nodes out of service
mod reservations; // Long jobs kept away from waiting nodes
mod running; // Jobs of the whole cluster
#[cfg(test)]
mod tests;
mod view; // A node as seen by its controller

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use muster_core::clusters::{Drain, DrainReason, Member, SlurmCluster};

pub use self::error::SlurmError;
pub use self::view::{BaseState, NodeView};
use crate::watch::{Stopped, Watch};

/// Time limits of Slurm operations.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Time limit of a program run.
    pub command: Duration,
    /// Pause between two polls.
    pub poll: Duration,
    /// Time limit until a restarted controller answers again.
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

/// All controllers used by this process. Each directory of included files has a single writer at a
/// time.
#[derive(Clone, Debug, Default)]
pub struct Controllers {
    limits: Limits,
    memberships: Arc<Mutex<HashMap<String, Arc<Membership>>>>,
}

/// State of this process for a directory of included files.
#[derive(Debug, Default)]
struct Membership {
    /// Locked while files are written and loaded by the controller.
    writer: tokio::sync::Mutex<()>,
    /// Locked while the server is asked for a list of members.
    asking: tokio::sync::Mutex<()>,
    /// The newest list seen, with its revision. Jobs overlap, and a slow job must not overwrite a
    /// newer list with its own older list.
    newest: Mutex<Option<(i64, Arc<[Member]>)>>,
}

impl Controllers {
    /// Creates the shared state without any controller.
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            memberships: Arc::default(),
        }
    }

    /// Returns a handle for the controller of a cluster. The call runs no program.
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

/// The controller of a cluster.
#[derive(Clone, Debug)]
pub struct Controller {
    cluster: SlurmCluster,
    limits: Limits,
    membership: Arc<Membership>,
}

impl Controller {
    /// Records the list of members for a revision. From now on an older list is never written, even
    /// if a caller passes one.
    pub fn note_members(&self, revision: i64, nodes: &[Member]) {
        let mut newest = self
            .membership
            .newest
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if newest.as_ref().is_none_or(|(known, _)| *known <= revision) {
            *newest = Some((revision, nodes.into()));
        }
    }

    /// Waits for the right to ask the server for the members of this cluster. The lock is held
    /// until the guard is dropped.
    pub async fn asking(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.membership.asking.lock().await
    }

    /// Returns the newest list seen, if its revision is `revision` or later.
    pub fn members_since(&self, revision: i64) -> Option<Arc<[Member]>> {
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

    /// Makes `name` a node accepting jobs. Writes `nodes` (all nodes of the cluster, including
    /// `name`), makes the controller load the files, and waits until the controller reports `name`
    /// without problems. Lifts drains set by Muster and never other drains. Returns the final view.
    ///
    /// # Errors
    /// [`SlurmError::DeadlinePassed`] with the state reported by the controller. Errors that no
    /// retry can fix are returned at once.
    pub async fn admit(
        &self,
        nodes: &[Member],
        name: &str,
        watch: &Watch,
    ) -> Result<NodeView, SlurmError> {
        self.take_into_use(nodes, name, None, watch).await
    }

    /// Returns a member held back with the reason `ours` to the scheduler. Works like
    /// [`admit`](Self::admit), but lifts only the drain with this reason. If a health check or an
    /// operator drained the node in the meantime, the call succeeds and the node stays drained. A
    /// node missing in `nodes` is listed by another administrator, for example an adopted machine.
    /// For such a node only the drain is lifted.
    ///
    /// # Errors
    /// As [`admit`](Self::admit).
    pub async fn give_back(
        &self,
        nodes: &[Member],
        name: &str,
        ours: DrainReason,
        watch: &Watch,
    ) -> Result<NodeView, SlurmError> {
        self.take_into_use(nodes, name, Some(ours), watch).await
    }

    async fn take_into_use(
        &self,
        nodes: &[Member],
        name: &str,
        lifts: Option<DrainReason>,
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
            watch.waiting_for(format!("Slurm to see {name} clean: {last}"));
            self.pause(watch, &last).await?;
        }
    }

    /// Returns the view of a node without problems, or a description of the remaining problems.
    async fn admit_step(
        &self,
        nodes: &[Member],
        wanted: &Member,
        lifts: Option<DrainReason>,
        reconfigured: &mut bool,
        watch: &Watch,
    ) -> Result<Result<NodeView, String>, SlurmError> {
        self.load(nodes, None, watch).await?;
        let Some(view) = self.view(&wanted.name).await? else {
            return Ok(Err("the controller does not know it".into()));
        };
        let complaints = view.complaints(wanted);
        let others = lifts.is_some_and(|ours| view.draining() && !view.drained_for(ours));
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
            // An earlier attempt ended after writing the files and before the reconfigure.
            self.reconfigure().await?;
            *reconfigured = true;
        }
        Ok(Err(complaints.join("; ")))
    }

    /// Returns the view of a node listed by another administrator after our drain is lifted, or a
    /// note about the lift just requested.
    async fn lift_step(
        &self,
        name: &str,
        ours: DrainReason,
    ) -> Result<Result<NodeView, String>, SlurmError> {
        let view = self
            .view(name)
            .await?
            .ok_or_else(|| SlurmError::NotListed { name: name.into() })?;
        if !view.draining() || !view.drained_for(ours) {
            return Ok(Ok(view));
        }
        self.scontrol(&["update", &format!("nodename={name}"), "state=resume"])
            .await?;
        Ok(Err("its drain was lifted just now".into()))
    }

    /// Drains `name` and waits until all jobs on the node ended. An existing drain keeps its
    /// reason. The exception is the temporary drain of a measurement, which gets the new reason. A
    /// node unknown to the controller has no jobs. With `requeue`, the controller requeues the jobs
    /// under our own drain.
    ///
    /// # Errors
    /// [`SlurmError::DeadlinePassed`] with the jobs still running; [`SlurmError::Refused`] if a job
    /// cannot be requeued.
    pub async fn drain(
        &self,
        name: &str,
        drain: impl Into<Drain>,
        watch: &Watch,
    ) -> Result<(), SlurmError> {
        includes::word("node name", name)?;
        let drain = drain.into();
        let mut requeued = BTreeSet::new();
        loop {
            let last = match self.drain_step(name, drain, &mut requeued).await {
                Ok(None) => return Ok(()),
                Ok(Some(busy)) => busy,
                Err(error) if patient(&error) => error.to_string(),
                Err(error) => return Err(error),
            };
            watch.waiting_for(format!("jobs to end on {name}: {last}"));
            self.pause(watch, &last).await?;
        }
    }

    /// Returns a description of the remaining jobs, or `None` when the node is drained.
    async fn drain_step(
        &self,
        name: &str,
        Drain { reason, requeue }: Drain,
        requeued: &mut BTreeSet<String>,
    ) -> Result<Option<String>, SlurmError> {
        let Some(view) = self.view(name).await? else {
            return Ok(None);
        };
        let measured = DrainReason::Measurement;
        if !view.draining() || (reason != measured && view.drained_for(measured)) {
            let update = [
                format!("nodename={name}"),
                format!("reason={}", reason.as_str()),
            ];
            self.scontrol(&["update", &update[0], "state=drain", &update[1]])
                .await?;
            return Ok(Some("the drain was asked for just now".into()));
        }
        let requeues = requeue && view.drained_for(reason);
        // A drained node gets no new jobs, so every job of the later list has its flags.
        let flags = match requeues {
            true => self.list_flags(&["-w", name]).await?,
            false => String::new(),
        };
        let running = self.jobs_on(name).await?;
        if requeues {
            let batch = running::read_requeued(&flags);
            self.requeue(&running, &batch, requeued).await?;
        }
        match running.is_empty() && !view.busy() {
            true => Ok(None),
            false if running.is_empty() => Ok(Some(format!("the controller shows it {view}"))),
            false => Ok(Some(jobs::sentence(&running, requeued))),
        }
    }

    /// Removes `name` from the controller. Writes `nodes` without `name`, makes the controller load
    /// the files, and waits until the controller no longer lists the node.
    ///
    /// # Errors
    /// [`SlurmError::InUse`] unless the node is drained or down and has no jobs.
    pub async fn remove(
        &self,
        nodes: &[Member],
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
            watch.waiting_for(format!("Slurm to forget {name}: {last}"));
            self.pause(watch, &last).await?;
        }
    }

    async fn remove_step(
        &self,
        nodes: &[Member],
        name: &str,
        watch: &Watch,
    ) -> Result<bool, SlurmError> {
        self.load(nodes, Some(name), watch).await?;
        Ok(self.view(name).await?.is_none() && !self.known_nodes().await?.contains(name))
    }

    /// Returns the state of `name` in the controller, or `None` for a node unknown to the
    /// controller.
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

/// Returns whether a wait continues after this error, because the controller is briefly
/// unreachable.
fn patient(error: &SlurmError) -> bool {
    matches!(
        error,
        SlurmError::Unreachable { .. } | SlurmError::Timeout { .. }
    )
}
