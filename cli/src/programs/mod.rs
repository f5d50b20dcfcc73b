//! The long-running programs behind `muster server`, `muster agent` and `muster dev`, and `muster migrate`.

pub(crate) mod agent; // Acts for one site
pub(crate) mod audit; // Verifies the sealed history
pub(crate) mod bootstrap; // Acts of an administrator on the server's host
pub(crate) mod dev; // All programs in a single process, on a private Postgres
pub(crate) mod doctor; // Checks of this host
pub(crate) mod host; // Database, master key and name for acts on the host
mod legal_holds; // Nodes with records of any age
pub(crate) mod logs; // Format and level of the log
pub(crate) mod migrate; // Migrates the schema
pub(crate) mod oidc; // The OpenID provider
pub(crate) mod postgres; // A private Postgres
pub(crate) mod public; // TLS of the public listener, and proxies before it
pub(crate) mod record; // Records the output of tools, for parsers
pub(crate) mod retention; // Options for the age of kept records
mod rotations; // Rotations of the server's keys
mod row_seals; // Seals tokens, people and sessions as they are
pub(crate) mod server; // Decides
pub(crate) mod startup; // Errors at the start, with user and remedy
mod unused_blobs; // Blobs without a use

use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// Cancelled by SIGTERM or Ctrl-C. A second signal ends the process at once.
///
/// # Errors
/// When the signals cannot be handled.
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
