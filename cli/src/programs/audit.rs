//! `muster audit verify`: holds the history against its seals, beside the database; nobody is asked but Postgres and the anchors.

use std::path::PathBuf;

use muster_server::audit::{self, Fault, Report};

use super::migrate::Database;

/// What can be asked of the history.
#[derive(Clone, Debug, clap::Subcommand)]
pub(crate) enum AuditVerb {
    /// Read every event and every seal, and tell what was changed, removed or cut off. Exits with 0 when the history is whole, 6 when it is not,
    /// 1 when that could not be found out.
    Verify {
        #[command(flatten)]
        database: Database,
        /// The seals that a server wrote down outside of the database: audit-anchors of its data directory. Without them nobody can tell whether
        /// the newest events were cut off together with their seals, or all of it was written anew.
        #[arg(long)]
        anchors: Option<PathBuf>,
    },
}

/// The history is not what was sealed. What was found is printed before.
#[derive(Debug)]
pub(crate) struct NotWhole(i64);

impl std::fmt::Display for NotWhole {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the history is not what was sealed: {} found", self.0)
    }
}

impl std::error::Error for NotWhole {}

/// Does it.
///
/// # Errors
/// When the history is not whole, or that could not be found out.
pub(crate) async fn run(verb: AuditVerb, machine_readable: Form) -> anyhow::Result<()> {
    let AuditVerb::Verify { database, anchors } = verb;
    // Before the database: what is sealed meanwhile is younger than the anchors.
    let written = anchors
        .as_deref()
        .map(audit::read_anchors)
        .transpose()?
        .unwrap_or_default();
    let pool = database.connect().await?;
    let report = audit::verify(&mut *pool.acquire().await?, &written).await?;
    match machine_readable {
        Form::Json => println!("{}", serde_json::to_string_pretty(&report)?),
        Form::Lines => lines(&report).iter().for_each(|line| println!("{line}")),
    }
    match report.whole {
        true => Ok(()),
        false => Err(NotWhole(report.found).into()),
    }
}

/// How the answer is printed.
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
                    "seal {seal} and what it covers were cut off: it is in the anchors, and the database ends before it"
                ),
                Fault::AnchorDiffers => format!("seal {seal} is not the one in the anchors"),
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
    lines.push(format!("head {}", report.head.as_deref().unwrap_or("none")));
    lines
}
