//! Clusters. The spec of a cluster becomes paths and configuration on the agent's host, so values
//! are checked strictly.

use muster_core::clusters::ClusterSpec;
use sqlx::PgConnection;

use super::residents;
use crate::db::objects::ObjectRow;
use crate::document::fault;
use crate::error::{Error, Fault};
use crate::http::declared::{Declared, Reference};
use crate::intents::references::Table;

impl Declared for ClusterSpec {
    const REFERENCES: Table = &[("/spec/site", "site")];

    fn references(&self) -> Vec<Reference<'_>> {
        match self {
            Self::Slurm(slurm) => vec![Reference::new("/spec/site", "site", &slurm.site)],
        }
    }

    fn faults(&self) -> Vec<Fault> {
        let Self::Slurm(slurm) = self;
        let mut faults = Vec::new();
        for (pointer, path) in [
            ("/spec/conf", &slurm.conf),
            ("/spec/include_dir", &slurm.include_dir),
        ] {
            if !path.starts_with('/') || path.contains("..") || path.chars().any(char::is_control) {
                faults.push(fault(
                    pointer,
                    "invalid_path",
                    "An absolute path without ..",
                ));
            }
        }
        let word = |text: &str| {
            !text.is_empty()
                && text
                    .bytes()
                    .all(|b| b.is_ascii_alphanumeric() || b"._-:".contains(&b))
        };
        for (pointer, text) in [
            ("/spec/partition", &slurm.partition),
            ("/spec/address", &slurm.address),
        ] {
            if !word(text) {
                faults.push(fault(
                    pointer,
                    "invalid_value",
                    "Letters, digits and . _ - :",
                ));
            }
        }
        faults
    }

    async fn allow_beside(
        conn: &mut PgConnection,
        before: Option<&ObjectRow>,
        row: &ObjectRow,
    ) -> Result<(), Error> {
        let advice = "release each claim with `muster claim release` first";
        residents::keep_place(conn, before, row, "site", advice).await
    }
}
