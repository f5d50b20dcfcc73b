//! The maintenance windows of a rollout. Changes of a window apply to running rollouts at the next
//! tick.

use jiff::Timestamp;
use muster_api::rollouts::RolloutWindow;
use muster_core::ids::RolloutId;
use muster_core::rollout::{Calendar, MaintenanceWindow, Opening};
use serde::Deserialize as _;
use sqlx::PgConnection;

use crate::db;
use crate::error::Error;

/// A maintenance window with its name.
#[derive(Clone, Debug)]
struct NamedWindow {
    name: String,
    /// `site`, `pool` or `rollout`.
    named_by: String,
    /// Name of the site, of the pool or of the rollout.
    namer: String,
    /// `None` for a deleted or unreadable window.
    window: Option<MaintenanceWindow>,
}

/// The maintenance windows of a rollout.
#[derive(Clone, Debug, Default)]
pub(crate) struct Windows {
    named: Vec<NamedWindow>,
    pub calendar: Calendar,
}

impl Windows {
    /// Loads the windows. A window that cannot be read closes the calendar.
    ///
    /// # Errors
    /// When the database fails.
    pub(crate) async fn load(conn: &mut PgConnection, rollout: RolloutId) -> Result<Self, Error> {
        let rows = db::maintenance_windows::list_named(conn, rollout).await?;
        let named: Vec<NamedWindow> = rows
            .into_iter()
            .map(|row| NamedWindow {
                name: row.name,
                named_by: row.named_by,
                namer: row.namer,
                window: row
                    .spec
                    .and_then(|spec| MaintenanceWindow::deserialize(spec).ok()),
            })
            .collect();
        let windows = named.iter().filter_map(|one| one.window.clone());
        let calendar = Calendar {
            windows: windows.collect(),
            is_unreadable: named.iter().any(|one| one.window.is_none()),
        };
        Ok(Self { named, calendar })
    }

    /// Returns whether nodes may be taken at a time.
    pub(crate) fn is_open_at(&self, time: Timestamp) -> bool {
        matches!(self.calendar.open_at(time), Opening::Open { .. })
    }

    /// Returns the names for a sentence: `nights and weekends`.
    pub(crate) fn list_names(&self) -> String {
        let mut names: Vec<&str> = self.named.iter().map(|one| one.name.as_str()).collect();
        names.dedup();
        names.join(" and ")
    }

    /// Returns the windows as of a time, for readers.
    pub(crate) fn describe(&self, now: Timestamp) -> Vec<RolloutWindow> {
        let describe = |one: &NamedWindow| {
            let state = one.window.as_ref().map(|window| window.open_at(now));
            let freeze = one.window.as_ref().and_then(|one| one.find_freeze(now));
            RolloutWindow {
                name: one.name.clone(),
                named_by: one.named_by.clone(),
                namer: one.namer.clone(),
                unreadable: one.window.is_none(),
                open: matches!(state, Some(Opening::Open { .. })),
                changes_at: match state {
                    Some(Opening::Open { until: at } | Opening::Closed { opens: at }) => at,
                    None => None,
                },
                frozen: freeze.map(|freeze| freeze.reason.clone()),
            }
        };
        self.named.iter().map(describe).collect()
    }
}
