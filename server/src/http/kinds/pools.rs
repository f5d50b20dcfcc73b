//! Pools. A pool with references that do not fit together is rejected at the write, because a
//! half-installed node costs far more.

use muster_api::pools::{
    DueRollout, LONGEST_UNDO_WINDOW_S, MOST_REPLICAS, OnChange, PoolSpec, PoolStatus,
};
use muster_core::clusters::ClusterSpec;
use muster_core::recovery::RecoveryPolicy;
use muster_core::stacks::StackSpec;
use sqlx::PgConnection;

use super::{fits, residents, signatures};
use crate::access::Place;
use crate::app::App;
use crate::auth::Actor;
use crate::db;
use crate::db::objects::ObjectRow;
use crate::document::{self, fault};
use crate::error::{Error, Fault};
use crate::http::declared::{Declared, Reference, Targets};
use crate::intents::claims::replicas;
use crate::intents::references::Table;

/// The permission to decide which software, gates and recovery nodes of a pool get.
const SETS_RELEASE: &str = "pool.set-release";
/// The permission to install images without a signature.
const DROPS_SIGNATURE: &str = "pool.drop-signature";
/// The permission for recoveries with more written root disks.
const ERASES_MORE: &str = "node.reinstall";

impl Declared for PoolSpec {
    const IN_REVISIONS: bool = true;
    const LOOSENING: &'static [&'static str] = &[
        "approval.decide",
        "budget.override",
        "rollout.start",
        SETS_RELEASE,
        DROPS_SIGNATURE,
        ERASES_MORE,
    ];
    const REFERENCES: Table = &[
        ("/spec/image", "image"),
        ("/spec/stack", "stack"),
        ("/spec/suite", "suite"),
        ("/spec/cluster", "cluster"),
        ("/spec/health/sweep", "suite"),
        ("/spec/health/smoke", "suite"),
        ("/spec/profile", "hardware_profile"),
        ("/spec/network_profile", "network_profile"),
        ("/spec/maintenance_window", "maintenance_window"),
    ];

    fn references(&self) -> Vec<Reference<'_>> {
        let mut references = vec![
            Reference::new("/spec/image", "image", &self.image),
            Reference::new("/spec/stack", "stack", &self.stack),
            Reference::new("/spec/suite", "suite", &self.suite),
            Reference::new("/spec/cluster", "cluster", &self.cluster),
        ];
        let sweep = self
            .health
            .as_ref()
            .and_then(|health| health.sweep.as_ref());
        references.extend(sweep.map(|name| Reference::new("/spec/health/sweep", "suite", name)));
        let smoke = self
            .health
            .as_ref()
            .and_then(|health| health.smoke.as_ref());
        references.extend(smoke.map(|name| Reference::new("/spec/health/smoke", "suite", name)));
        references.extend(
            self.profile
                .iter()
                .map(|name| Reference::new("/spec/profile", "hardware_profile", name.as_str())),
        );
        let network = self.network_profile.iter();
        references.extend(
            network.map(|name| Reference::new("/spec/network_profile", "network_profile", name)),
        );
        let window = self.maintenance_window.iter();
        references
            .extend(window.map(|name| {
                Reference::new("/spec/maintenance_window", "maintenance_window", name)
            }));
        references
    }

    fn faults(&self) -> Vec<Fault> {
        let detail = format!("At most {LONGEST_UNDO_WINDOW_S} seconds: a week.");
        let long = self.undo_window_s > LONGEST_UNDO_WINDOW_S;
        let mut faults: Vec<Fault> = long
            .then(|| fault("/spec/undo_window_s", "out_of_range", detail))
            .into_iter()
            .collect();
        if self.replicas.is_some_and(|count| count > MOST_REPLICAS) {
            faults.push(fault(
                "/spec/replicas",
                "out_of_range",
                format!("At most {MOST_REPLICAS}."),
            ));
        }
        let Some(health) = &self.health else {
            return faults;
        };
        if !(1..=720).contains(&health.sweep_every_h) {
            faults.push(fault(
                "/spec/health/sweep_every_h",
                "out_of_range",
                "1 to 720 hours.".to_owned(),
            ));
        }
        let wrong = health.recovery.iter().flat_map(|policy| policy.faults());
        faults.extend(wrong.map(|(member, why)| {
            let pointer = format!("/spec/health/recovery/{member}");
            fault(pointer, "out_of_range", why)
        }));
        faults
    }

    /// Needs `approval.decide` for a higher release limit or a shorter undo window,
    /// `budget.override` for a disruption budget that may allow more nodes, and `rollout.start` for
    /// another maintenance window or none, or for automatic rollouts. An actor with the permissions may
    /// approve each release, override the budget for each node, or start each rollout, anyway.
    /// New references to an image, stack, suite or hardware profile, and new rungs, need
    /// `pool.set-release`. Images without a signature need `pool.drop-signature`. Recoveries with
    /// more written root disks need `node.reinstall`.
    fn loosened(&self, new: &Self) -> Vec<&'static str> {
        let most = |limit: Option<u32>| limit.unwrap_or(u32::MAX);
        let more = most(new.releases_per_hour) > most(self.releases_per_hour);
        let release = more || new.undo_window_s < self.undo_window_s;
        let budget = new.max_unavailable.may_exceed(self.max_unavailable);
        let window = &self.maintenance_window;
        let window = window.is_some() && *window != new.maintenance_window;
        let starts = new.on_change == OnChange::Start && self.on_change != OnChange::Start;
        let unsigned = self.require_signature && !new.require_signature;
        let verbs = [
            (release, "approval.decide"),
            (budget, "budget.override"),
            (window || starts, "rollout.start"),
            (sets_release(self, new), SETS_RELEASE),
            (unsigned, DROPS_SIGNATURE),
            (policy(new).may_erase_more(&policy(self)), ERASES_MORE),
        ];
        let needed = verbs.into_iter().filter(|(is_needed, _)| *is_needed);
        needed.map(|(_, verb)| verb).collect()
    }

    /// Needs `pool.set-release`, because every pool names an image, a stack and a suite, and
    /// `node.reinstall` for recoveries with written root disks or above the default limits.
    fn opened(&self) -> Vec<&'static str> {
        match policy(self).may_erase_more(&RecoveryPolicy::none()) {
            true => vec![SETS_RELEASE, ERASES_MORE],
            false => vec![SETS_RELEASE],
        }
    }

    /// Needs the permission to claim every node of the cluster's site, when the pool would claim
    /// more nodes or nodes of another site; and the permission to start rollouts at the site, for a new
    /// pool with automatic rollouts.
    fn allow_actor(
        &self,
        actor: &Actor,
        before: Option<&Self>,
        targets: &Targets,
    ) -> Result<(), Error> {
        let many = |spec: &Self| spec.replicas.unwrap_or(0);
        let more =
            before.is_none_or(|before| many(self) > many(before) || self.cluster != before.cluster);
        let cluster: Option<ClusterSpec> = targets.spec("/spec/cluster")?;
        let Some(cluster) = cluster else {
            return Ok(());
        };
        let whole = Place {
            site: Some(cluster.site().to_owned()),
            ..Place::default()
        };
        let starts = before.is_none() && self.on_change == OnChange::Start;
        if starts && !actor.holding.there("rollout.start", &whole) {
            return Err(Error::Forbidden(format!(
                "The rollouts of this pool would start by themselves: this needs rollout.start at the site of its cluster, which {} has not.",
                actor.name
            )));
        }
        if !more || many(self) == 0 {
            return Ok(());
        }
        match actor.holding.there("claim.create", &whole) {
            true => Ok(()),
            false => Err(Error::Forbidden(format!(
                "A pool with replicas claims any available node of its cluster's site: this needs claim.create for the whole of that site, which {} has \
                 not.",
                actor.name
            ))),
        }
    }

    fn faults_beside(&self, targets: &Targets) -> Result<Vec<Fault>, Error> {
        let mut faults = Vec::new();
        let Some(stack) = targets.spec::<StackSpec>("/spec/stack")? else {
            return Ok(faults);
        };
        if stack.image != self.image {
            let detail = format!(
                "The stack {:?} is built for the image {:?}.",
                self.stack, stack.image
            );
            faults.push(fault("/spec/stack", "other_image", detail));
        }
        if stack.lock.is_none() {
            let detail = format!(
                "The stack {:?} is not locked: run `muster stack lock`.",
                self.stack
            );
            faults.push(fault("/spec/stack", "not_locked", detail));
        }
        Ok(faults)
    }

    async fn allow_beside(
        conn: &mut PgConnection,
        before: Option<&ObjectRow>,
        row: &ObjectRow,
    ) -> Result<(), Error> {
        let advice = "release each claim with `muster claim release` first";
        residents::keep_place(conn, before, row, "cluster", advice).await?;
        signatures::check_pool(conn, before, row).await?;
        fits::check_pool(conn, before, row).await
    }

    async fn status(
        app: &App,
        conn: &mut PgConnection,
        row: &ObjectRow,
    ) -> Result<PoolStatus, Error> {
        let spec: PoolSpec = document::stored(row)?;
        let (present_revision, newest_revision) = db::revisions::find_numbers(conn, row.id).await?;
        let change_held =
            spec.on_change == OnChange::Hold && db::revisions::has_change(conn, row.id).await?;
        let due = db::due_rollouts::find(conn, row.id).await?;
        Ok(PoolStatus {
            present_revision,
            newest_revision,
            change_held,
            due_rollout: due.map(|due| DueRollout {
                revision: due.number,
                since: due.created_at,
                code: due.reason_code,
                because: due.reason,
            }),
            effective_on_change: spec.on_change,
            effective_undo_window_s: spec.undo_window_s,
            effective_health: spec.health,
            replicas: replicas::describe(conn, row, app.clock.now()).await?,
        })
    }
}

/// The recovery policy in force: without a policy, a failing node is quarantined.
fn policy(pool: &PoolSpec) -> RecoveryPolicy {
    let health = pool.health.as_ref();
    let policy = health.and_then(|health| health.recovery.clone());
    policy.unwrap_or_else(RecoveryPolicy::none)
}

/// Whether `new` names other software, gates or root disks for nodes, or further rungs. To end a
/// sweep suite, a smoke suite or a rung is allowed: no new program runs on a node.
fn sets_release(before: &PoolSpec, new: &PoolSpec) -> bool {
    let suites = |pool: &PoolSpec| {
        let health = pool.health.clone();
        health.map_or((None, None), |health| (health.sweep, health.smoke))
    };
    let ((old_sweep, old_smoke), (sweep, smoke)) = (suites(before), suites(new));
    let names_other = |old: &Option<String>, new: &Option<String>| new.is_some() && old != new;
    let rungs = policy(before).rungs;
    before.image != new.image
        || before.stack != new.stack
        || before.suite != new.suite
        || before.profile != new.profile
        || names_other(&old_sweep, &sweep)
        || names_other(&old_smoke, &smoke)
        || policy(new).rungs.iter().any(|rung| !rungs.contains(rung))
}
