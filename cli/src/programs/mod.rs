//! The long-running programs behind `muster server`, `muster agent` and `muster dev`, and `muster migrate`.

pub(crate) mod agent; // Acts for one site
pub(crate) mod audit; // Compares the history with the seals
pub(crate) mod bootstrap; // The first administrator and the first token
pub(crate) mod dev; // All programs in one process, on a private Postgres
pub(crate) mod doctor; // Checks this host
pub(crate) mod logs; // Format and level of the log
pub(crate) mod migrate; // Migrates the schema
pub(crate) mod oidc; // The provider of identities
pub(crate) mod postgres; // A private Postgres
pub(crate) mod record; // Records the output of tools, for parsers
pub(crate) mod server; // A replica of the server

use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// Returns a token cancelled by SIGTERM or Ctrl-C. A second signal ends the process at once.
///
/// # Errors
/// When the process cannot watch signals.
pub(crate) fn until_stopped() -> std::io::Result<CancellationToken> {
    let cancel = CancellationToken::new();
    let told = cancel.clone();
    let (mut terminate, mut interrupt) = (
        signal(SignalKind::terminate())?,
        signal(SignalKind::interrupt())?,
    );
    #[expect(
        clippy::disallowed_methods,
        reason = "the process owns the watch of its signals, from start to exit"
    )]
    tokio::spawn(async move {
        for turn in 0.. {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
            if turn > 0 {
                std::process::exit(130);
            }
            told.cancel();
        }
    });
    Ok(cancel)
}
