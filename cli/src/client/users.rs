//! `muster user`.

use clap::Subcommand;

use super::asking;
use super::session::Session;

/// Subcommands of people.
#[derive(Debug, Subcommand)]
pub(crate) enum UserVerb {
    /// Disable a person at once: sessions end, tokens are refused
    Disable {
        /// Name or id
        user: String,
        /// Skip the confirmation. Scripts without a terminal are never asked
        #[arg(short, long)]
        yes: bool,
    },
    /// Enable a person again
    Enable {
        /// Name or id
        user: String,
    },
    /// End the delay of a person's logins after failed ones
    Unlock {
        /// Name or id
        user: String,
    },
}

pub(super) async fn run(session: &Session, verb: UserVerb) -> anyhow::Result<()> {
    match verb {
        UserVerb::Disable { user, yes } => {
            if asking::agreed(
                &format!("Whatever {user} and their tokens do stops at once. Keep them out?"),
                yes,
            )? {
                let person = session.client.act_on_user(&user, "disable").await?;
                session
                    .output
                    .print_lines(&person, || vec![format!("{} is kept out", person.name)])?;
            }
            Ok(())
        }
        UserVerb::Enable { user } => {
            let person = session.client.act_on_user(&user, "enable").await?;
            session
                .output
                .print_lines(&person, || vec![format!("{} may sign in", person.name)])
        }
        UserVerb::Unlock { user } => {
            let person = session.client.act_on_user(&user, "unlock").await?;
            session
                .output
                .print_lines(&person, || vec![format!("{} is unlocked", person.name)])
        }
    }
}
