//! `muster caution`.

use clap::Subcommand;
use muster_api::cautions::{CautionStatus, ConfirmCaution};
use uuid::Uuid;

use super::output::age;
use super::session::Session;

/// Subcommands of caution mode.
#[derive(Debug, Subcommand)]
pub(crate) enum CautionVerb {
    /// Show whether the installation is in caution mode, the cause, and the agents heard since
    Show,
    /// End caution mode. Check before that the database's view of the nodes is right
    Confirm {
        /// The id printed by `muster caution show`
        id: Uuid,
        /// Result of the check, recorded in the history
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
        return vec!["caution mode is off: all actions are allowed".into()];
    };
    let now = session.clock.now();
    let place = match caution.whole_fleet {
        true => "in the whole fleet".to_owned(),
        false if caution.sites.is_empty() => "at sites outside of your scope".to_owned(),
        false => format!("at {}", caution.sites.join(", ")),
    };
    let mut lines = vec![
        format!(
            "CAUTION since {}: {}",
            age(now, Some(caution.noticed_at)),
            caution.because
        ),
        format!(
            "Nothing is powered or written {place}. Look at what the nodes hold against what the database says."
        ),
    ];
    for witness in &status.agents {
        let heard = if witness.heard {
            "heard since"
        } else {
            "NOT heard since: this agent may remember later acts"
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
