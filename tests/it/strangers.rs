//! The documented contract, held against by a program that knows nothing else: Schemathesis reads /openapi.json and sends what it allows and what it
//! does not, as an admin, as a viewer, and as nobody. No answer may be a bug of ours, or another than the document says.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use muster_api::tokens::Role;
use muster_core::clock::Clock;

use crate::support::fleet;
use crate::support::postgres;
use crate::support::server::{Caller, Server};

/// For each caller. What it sends is bounded by the number of examples; this only ends what hangs: a machine that does much else takes ten times as long
/// as an idle one. The test runner's own limit, in `.config/nextest.toml`, is beyond it.
const LONGEST: Duration = Duration::from_secs(1500);
const CHECKS: &str = "not_a_server_error,status_code_conformance,content_type_conformance,response_headers_conformance,\
                      response_schema_conformance,unsupported_method,allow_header_conformance";

/// `EXAMPLES=50` for more of each operation than a test run has time for.
async fn judge(url: &str, caller: &Caller, phases: &str) {
    let program =
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../.cache/schemathesis/bin/schemathesis");
    assert!(
        program.exists(),
        "run tests/api/install: {} is missing",
        program.display()
    );
    let examples = std::env::var("EXAMPLES").unwrap_or_else(|_| "3".to_owned());
    let mut command = tokio::process::Command::new(program);
    let folder = tempfile::tempdir().unwrap();
    command.current_dir(folder.path()).args([
        "run",
        &format!("{url}/openapi.json"),
        "--checks",
        CHECKS,
    ]);
    command.args([
        "--phases",
        phases,
        "--max-examples",
        &examples,
        "--seed",
        "1",
        "--no-color",
    ]);
    // One after the other: with two workers the program trips over itself.
    command.args([
        "--no-shrink",
        "--continue-on-failure",
        "--request-timeout",
        "70",
        "--workers",
        "1",
    ]);
    command.args([
        "--warnings",
        "off",
        "--suppress-health-check",
        "all",
        "--generation-database",
        "none",
    ]);
    if let Some(token) = &caller.token {
        command.args(["--header", &format!("Authorization: Bearer {token}")]);
    }
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    let output = tokio::time::timeout(LONGEST, command.output())
        .await
        .expect("it ends in time")
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    println!("{text}");
    assert!(
        output.status.success(),
        "{text}\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

/// A server in which every name that the examples of the document use is there.
async fn server() -> (Server, Caller) {
    let server = Server::on(postgres::database().await, Clock::System).await;
    let admin = server.admin().await;
    fleet::declare_pool(&admin).await;
    fleet::available(&server, &admin, 3).await;
    (server, admin)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "minutes of another program's work: make strangers"]
async fn an_admin_gets_what_is_documented() {
    let (server, admin) = server().await;
    judge(&server.listen().await, &admin, "examples,coverage,fuzzing").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "minutes of another program's work: make strangers"]
async fn a_viewer_gets_what_is_documented() {
    let (server, _) = server().await;
    judge(
        &server.listen().await,
        &server.caller(Role::Viewer).await,
        "examples,fuzzing",
    )
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "minutes of another program's work: make strangers"]
async fn nobody_gets_what_is_documented() {
    let (server, _) = server().await;
    judge(&server.listen().await, &server.nobody(), "examples,fuzzing").await;
}
