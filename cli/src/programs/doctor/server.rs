//! The server configured for the command line: answers, and accepts the token.

use muster_api::client::ClientError;

use super::{Found, Host};

pub(super) async fn reaches(host: &Host) -> Vec<Found> {
    let url = &host.url;
    // Any answer of the API counts.
    vec![match host.client.get_value(&["caution"], &[]).await {
        Ok(_) => Found::ok(format!("{url} answers")),
        Err(ClientError::Problem(problem)) if problem.status < 500 => {
            Found::ok(format!("{url} answers"))
        }
        Err(ClientError::Problem(problem)) => Found::fail(
            format!("{url} answers, and cannot serve: {}", problem.detail),
            "see the check `database`, and the server's log",
        ),
        Err(ClientError::Unreachable(error)) => Found::warn(
            format!(
                "no server answers at {url}{}",
                if error.is_timeout() { " in time" } else { "" }
            ),
            "start `muster server`, or set its address: --server, --context, MUSTER_SERVER",
        ),
        Err(error) => Found::fail(
            format!("{url} is no Muster server: {error}"),
            "check the address and port; a proxy before it must pass /v1",
        ),
    }]
}

pub(super) async fn knows(host: &Host) -> Vec<Found> {
    vec![
        match host.client.get_value(&["nodes"], &[("limit", "1")]).await {
            Ok(_) => Found::ok("the token is valid and may read the fleet"),
            Err(error) if error.status() == Some(401) => Found::fail(
                "the server does not know the token, or there is none",
                "set MUSTER_TOKEN or --token-file; `muster admin token` beside the database makes a first one",
            ),
            Err(error) if error.status() == Some(403) => Found::warn(
                "the token is valid, and may not read the whole fleet",
                "ask for a role binding, or use another token",
            ),
            Err(_) => Found::unknown(
                "the validity of the token is unknown without a server",
                "see the check `server`",
            ),
        },
    ]
}
