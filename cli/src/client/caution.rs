//! `muster caution`.

use clap::Subcommand;
use muster_api::cautions::{CautionStatus, ConfirmCaution};
use uuid::Uuid;

use super::output::age;
use super::session::Session;

/// What can be done about caution mode.
#[derive(Debug, Subcommand)]
pub(crate) enum CautionVerb {
    /// Say whether the fleet is in caution mode, why, and which agents have been heard of since.
    Show,
    /// End it: the database was looked into, and what it says about the nodes holds.
    Confirm {
        /// The id that `muster caution show` prints.
        id: Uuid,
        /// What was found, for the history.
        #[arg(long)]
        note: String,
    },
}

pub(super) async fn run(session: &Session, verb: CautionVerb) -> anyhow::Result<()> {
    let status = match verb {
        CautionVerb::Show => session.client.caution().await?,
        CautionVerb::Confirm { id, note } => {
            session
                .client
                .confirm_caution(&ConfirmCaution { id, note })
                .await?
        }
    };
    session
        .output
        .print_lines(&status, || told(session, &status))
}

fn told(session: &Session, status: &CautionStatus) -> Vec<String> {
    let Some(caution) = &status.caution else {
        return vec!["no caution: everything goes on as usual".into()];
    };
    let now = session.clock.now();
    let mut lines = vec![
        format!("CAUTION since {}: {}", age(now, Some(caution.noticed_at)), caution.because),
        "Nothing is powered or written. Look at what the nodes hold against what the database says.".into(),
    ];
    for witness in &status.agents {
        let heard = if witness.heard {
            "heard of since"
        } else {
            "NOT heard of since: it may know of more"
        };
        lines.push(format!(
            "  agent {} of {}: {heard}",
            witness.agent, witness.site
        ));
    }
    lines.push(format!(
        "Then: muster caution confirm {} --note 'what was found'",
        caution.id
    ));
    lines
}
