//! `muster audit verify`: compares the history with its seals, directly in the database. Only
//! Postgres and the anchors are read.

use std::path::PathBuf;

use muster_server::audit::{self, Copies, Fault, Report};
use muster_server::db;

use super::migrate::Database;

/// The checks of the history.
#[derive(Clone, Debug, clap::Subcommand)]
pub(crate) enum AuditVerb {
    /// Compare every event with the seals, and report changed, removed or cut-off events. Exit
    /// codes: 0 intact, 6 damaged,
    /// 1 unknown
    Verify {
        #[command(flatten)]
        database: Database,
        /// The seals written outside of the database: `audit-anchors` of the server's data
        /// directory. Without anchors a cut-off end, or a history
        /// rewritten as a whole, goes unnoticed
        #[arg(long)]
        anchors: Option<PathBuf>,
        /// The folder with the exported events: `blobs/removed-events` of the server's data
        /// directory, or a copy. Without the folder, removed events count by the seals around them
        #[arg(long, value_name = "FOLDER")]
        exports: Option<PathBuf>,
    },
}

/// The history differs from the seals. The differences are already printed.
#[derive(Debug)]
pub(crate) struct NotWhole(i64);

impl std::fmt::Display for NotWhole {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the history is not what was sealed: {} found", self.0)
    }
}

impl std::error::Error for NotWhole {}

/// Executes the subcommand.
///
/// # Errors
/// When the history is damaged, or the check is impossible.
pub(crate) async fn run(verb: AuditVerb, machine_readable: Form) -> anyhow::Result<()> {
    let AuditVerb::Verify {
        database,
        anchors,
        exports,
    } = verb;
    // Read before the database: later seals are newer than the anchors.
    let written = anchors
        .as_deref()
        .map(audit::read_anchors)
        .transpose()?
        .unwrap_or_default();
    let pool = database.connect().await?;
    let copies = Copies {
        anchors: &written,
        exports: exports.as_deref(),
    };
    let mut tx = pool.begin().await?;
    db::seals::read_snapshot(&mut tx).await?;
    let report = audit::verify(&mut tx, copies).await?;
    drop(tx);
    match machine_readable {
        Form::Json => print_line!("{}", serde_json::to_string_pretty(&report)?),
        Form::Lines => lines(&report).iter().for_each(|line| print_line!("{line}")),
    }
    match report.whole {
        true => Ok(()),
        false => Err(NotWhole(report.found).into()),
    }
}

/// The format of the result.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    Json,
    Lines,
}

fn lines(report: &Report) -> Vec<String> {
    let mut lines: Vec<String> = report
        .findings
        .iter()
        .map(|finding| {
            let event = finding.seq.map(|seq| format!("event {seq} ")).unwrap_or_default();
            let seal = finding.seal;
            match finding.fault {
                Fault::EventChanged => format!("{event}was changed after it was sealed (seal {seal})"),
                Fault::EventRemoved => format!("{event}was removed after it was sealed (seal {seal})"),
                Fault::EventAdded => format!("{event}was added after its neighbours were sealed (seal {seal})"),
                Fault::SealRemoved => format!("seal {seal} is gone"),
                Fault::SealChanged => format!("seal {seal} was changed"),
                Fault::Truncated => format!(
                    "seal {seal} and its events were cut off: the anchors or a removed segment contain the seal, and no later seal is left"
                ),
                Fault::AnchorDiffers => format!("seal {seal} is not the one in the anchors"),
                Fault::ExportMissing => format!(
                    "the exported file of the removed events from seal {seal} on is missing"
                ),
                Fault::ExportDiffers => format!(
                    "the exported file of the removed events from seal {seal} on is not the one that was written"
                ),
                Fault::AnchorUnreadable => format!("line {seal} of the anchors cannot be read"),
            }
        })
        .collect();
    let told = i64::try_from(lines.len()).unwrap_or(i64::MAX);
    if report.found > told {
        lines.push(format!("and {} more", report.found - told));
    }
    let since = report
        .unsealed_since
        .map(|at| format!(", the first of {at}"))
        .unwrap_or_default();
    lines.push(format!(
        "{} events under {} seals, {} anchors, {} too new for a seal{since}",
        report.events, report.seals, report.anchors, report.unsealed
    ));
    if report.removed_segments > 0 {
        lines.push(format!(
            "{} removed events in {} segments, {} compared with their exported files",
            report.removed_events, report.removed_segments, report.exports
        ));
    }
    lines.push(format!("head {}", report.head.as_deref().unwrap_or("none")));
    lines
}
