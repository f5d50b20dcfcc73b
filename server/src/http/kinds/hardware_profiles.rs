//! Hardware profiles.

use muster_core::gates::lint_profile;
use muster_core::lifecycle::state::State;
use muster_core::profiles::HardwareProfile;
use sqlx::PgConnection;

use super::fits;
use crate::db::objects::ObjectRow;
use crate::document::fault;
use crate::error::{Error, Fault};
use crate::http::declared::Declared;

impl Declared for HardwareProfile {
    fn faults(&self) -> Vec<Fault> {
        let mut faults = Vec::new();
        let mut need = |holds: bool, pointer: &str, detail: &str| {
            if !holds {
                faults.push(fault(pointer, "out_of_range", detail));
            }
        };
        need((1..=64).contains(&self.sockets), "/spec/sockets", "1 to 64");
        need(
            (1..=1024).contains(&self.cores_per_socket),
            "/spec/cores_per_socket",
            "1 to 1024",
        );
        need(
            (1..=8).contains(&self.threads_per_core),
            "/spec/threads_per_core",
            "1 to 8",
        );
        need(self.memory_mib > 0, "/spec/memory_mib", "more than 0");
        let schedulable = (1..=self.memory_mib).contains(&self.schedulable_memory_mib);
        need(
            schedulable,
            "/spec/schedulable_memory_mib",
            "1 to memory_mib",
        );
        need(
            (1..=1_000_000).contains(&self.power_max_w),
            "/spec/power_max_w",
            "1 to 1,000,000 W",
        );
        if let Some(gpus) = &self.gpus {
            need(
                (1..=64).contains(&gpus.count),
                "/spec/gpus/count",
                "1 to 64",
            );
            let plain = |b: u8| b.is_ascii_alphanumeric() || b" ._-".contains(&b);
            need(
                !gpus.model.is_empty() && gpus.model.bytes().all(plain),
                "/spec/gpus/model",
                "letters, digits, space . _ -",
            );
        }
        for (part, problem) in lint_profile(self) {
            need(false, &format!("/spec/{part}"), &problem);
        }
        for (state, seconds) in &self.deadlines_s {
            let pointer = format!("/spec/deadlines_s/{}", crate::document::escape(state));
            let moving = state.parse::<State>().is_ok_and(|state| !state.is_steady());
            need(moving, &pointer, "the name of a state that has a deadline");
            need(
                (1..=30 * 24 * 3600).contains(seconds),
                &pointer,
                "1 second to 30 days",
            );
        }
        faults
    }

    async fn allow_beside(
        conn: &mut PgConnection,
        before: Option<&ObjectRow>,
        row: &ObjectRow,
    ) -> Result<(), Error> {
        fits::check_pools(conn, before, row).await
    }
}
