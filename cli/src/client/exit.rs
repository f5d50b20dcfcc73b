//! Exit codes, for scripts: 0 done · 1 failed · 2 used wrongly · 3 not found · 4 conflict · 5 server not reached · 6 the history
//! is not what was sealed.

use muster_api::client::ClientError;

use crate::programs::audit::NotWhole;

/// Shown at the end of `--help`.
pub(crate) const HELP: &str = "Exit codes: 0 done, 1 failed, 2 used wrongly, 3 not found, 4 conflict, 5 server not reached, 6 the history is not what was sealed.\n\
                        Server and token: --url and MUSTER_TOKEN, or a context of ~/.config/muster/config.toml.";

/// The code of a failure.
pub(crate) fn code(error: &anyhow::Error) -> u8 {
    if error.is::<NotWhole>() {
        return 6;
    }
    let Some(error) = error.chain().find_map(|cause| cause.downcast_ref::<ClientError>()) else { return 1 };
    match (error, error.status()) {
        (ClientError::Usage(_), _) | (_, Some(400 | 422)) => 2,
        (_, Some(404)) => 3,
        (_, Some(409 | 412 | 428)) => 4,
        (ClientError::Unreachable(_), _) | (_, Some(502..=504)) => 5,
        _ => 1,
    }
}
