//! `muster user`.

use clap::Subcommand;

use super::asking;
use super::session::Session;

/// What can be done with people.
#[derive(Debug, Subcommand)]
pub(crate) enum UserVerb {
    /// Keep a person out, at once: sessions end, tokens may nothing.
    Disable {
        /// Name or id.
        user: String,
        /// Do not ask. Nobody is asked where nobody can answer.
        #[arg(short, long)]
        yes: bool,
    },
    /// Let a person in again.
    Enable {
        /// Name or id.
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
    }
}
