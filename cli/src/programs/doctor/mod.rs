//! `muster doctor`: checks this host's set-up. The checks only read, and need no running server.
//! Each check is
//! a file with its own time limit, and reports "unknown" if the check is impossible.

mod addresses; // The provisioning addresses, on interfaces that are up
mod agents; // Silent agents, and agents of another version
mod bmcs; // Reachability of BMCs
mod certificates; // Nodes that accept SSH certificates of removed agents
mod clocks; // This clock against the database's and the server's, and NTP
mod database; // Reachable, takes writes, new enough, durable, room for connections
mod dhcp; // Another DHCP server on the provisioning network
mod documents; // Documents stored wrongly by an earlier version
mod files; // Data directories and key files: present and private
mod keys; // Rotations of the server's keys under way
mod loaders; // Boot loaders and muster-node
mod machines; // Addresses that the agents do not serve
mod networks; // Networks of BMCs and consoles
mod ports; // Ports taken by other programs
mod remains; // Deleted nodes with data on disks
mod rights; // Capabilities of the agent
mod roles; // Roles that lose rights with the next version
mod room; // Free space on the disks
mod schema; // Outstanding migrations
mod seals; // Tokens, people and sessions without a valid seal
mod server; // The server answers and accepts the token
mod sockets; // Owners of ports
mod suites; // Suites from before the rule of programs
mod time_service; // Time for nodes from the agent's host
mod tools; // Programs started by the agent

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::pin::Pin;
use std::time::Duration;

use muster_api::client::Client;
use muster_core::clock::Clock;
use serde::Serialize;
use serde_json::json;
use sqlx::PgPool;
use tokio::sync::OnceCell;

use super::agent::Loaders;
use crate::client::exit::Unsound;
use crate::client::output::{Column, Form};
use crate::client::session::Common;

/// Time limit of a check.
const PATIENCE: Duration = Duration::from_secs(15);

/// Places on this host, as given to server and agent.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct DoctorArgs {
    /// Role of this host. Default: server if a database or a key file is found, agent if its data
    /// directory is found, otherwise both
    #[arg(long = "as", value_enum, value_delimiter = ',')]
    part: Vec<Part>,
    /// Names of the checks to run, as in the first column
    #[arg(long, value_name = "CHECK", value_delimiter = ',')]
    only: Vec<String>,
    /// As for `muster server`.
    #[arg(long, env = "MUSTER_DATABASE_URL", hide_env_values = true)]
    database_url: Option<String>,
    /// As for `muster server`.
    #[arg(long, default_value = "127.0.0.1:8080")]
    listen: SocketAddr,
    /// As for `muster server`.
    #[arg(long, default_value = "127.0.0.1:8081")]
    agent_listen: SocketAddr,
    /// As for `muster server`.
    #[arg(long, default_value = "/var/lib/muster")]
    data_dir: PathBuf,
    /// As for `muster server`.
    #[arg(
        long,
        env = "MUSTER_KEY_FILE",
        default_value = "/etc/muster/master.key"
    )]
    key_file: PathBuf,
    /// As for `muster server`.
    #[arg(long, env = "MUSTER_FORMER_KEY_FILE", value_name = "FILE")]
    former_key_file: Option<PathBuf>,
    /// As --data-dir for `muster agent`.
    #[arg(long, default_value = "/var/lib/muster-agent")]
    agent_data_dir: PathBuf,
    /// As --token-file for `muster agent`.
    #[arg(long, env = "MUSTER_AGENT_TOKEN_FILE")]
    agent_token_file: Option<PathBuf>,
    #[command(flatten)]
    loaders: Loaders,
    /// The agent's address on a provisioning network. Repeatable. Default: the addresses of the
    /// latest site configuration
    #[arg(long)]
    address: Vec<Ipv4Addr>,
}

/// The role of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Part {
    Server,
    Agent,
}

/// The result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Verdict {
    Ok,
    /// Works now, with a problem ahead.
    Warn,
    Fail,
    /// The check was impossible.
    Unknown,
}

/// A finding: the state in one sentence, and the remedy in another.
#[derive(Clone, Debug, Serialize)]
struct Finding {
    check: &'static str,
    verdict: Verdict,
    found: String,
    todo: Option<String>,
}

/// Built by a check. The caller adds the check's name.
#[derive(Clone, Debug)]
struct Found(Verdict, String, Option<String>);

impl Found {
    fn ok(found: impl Into<String>) -> Self {
        Self(Verdict::Ok, found.into(), None)
    }

    fn warn(found: impl Into<String>, todo: impl Into<String>) -> Self {
        Self(Verdict::Warn, found.into(), Some(todo.into()))
    }

    fn fail(found: impl Into<String>, todo: impl Into<String>) -> Self {
        Self(Verdict::Fail, found.into(), Some(todo.into()))
    }

    fn unknown(found: impl Into<String>, todo: impl Into<String>) -> Self {
        Self(Verdict::Unknown, found.into(), Some(todo.into()))
    }
}

/// The input of the checks.
#[derive(Debug)]
struct Host {
    args: DoctorArgs,
    url: String,
    client: Client,
    clock: Clock,
    /// Connected by the first check using the database, so an unreachable database costs a single
    /// timeout.
    database: OnceCell<Result<PgPool, Found>>,
}

impl Host {
    fn is(&self, part: Part) -> bool {
        let args = &self.args;
        let server = args.database_url.is_some() || args.key_file.exists();
        let agent = args.agent_data_dir.exists()
            || args.agent_token_file.is_some()
            || !args.address.is_empty();
        match (args.part.is_empty(), part) {
            (false, part) => args.part.contains(&part),
            (true, _) if !server && !agent => true,
            (true, Part::Server) => server,
            (true, Part::Agent) => agent,
        }
    }
}

type Checking<'a> = Pin<Box<dyn Future<Output = Vec<Found>> + Send + 'a>>;
type Check = (
    &'static str,
    Option<Part>,
    for<'a> fn(&'a Host) -> Checking<'a>,
);

/// All checks: name, role, function.
const CHECKS: [Check; 25] = [
    ("ports", None, |host| Box::pin(async { ports::check(host) })),
    ("database", Some(Part::Server), |host| {
        Box::pin(database::check(host))
    }),
    ("schema", Some(Part::Server), |host| {
        Box::pin(schema::check(host))
    }),
    ("remains", Some(Part::Server), |host| {
        Box::pin(remains::check(host))
    }),
    ("certificates", Some(Part::Server), |host| {
        Box::pin(certificates::check(host))
    }),
    ("clocks", None, |host| Box::pin(clocks::check(host))),
    ("files", None, |host| Box::pin(async { files::check(host) })),
    ("room", None, |host| Box::pin(async { room::check(host) })),
    ("rights", Some(Part::Agent), |_| {
        Box::pin(async { rights::check() })
    }),
    ("addresses", Some(Part::Agent), |host| {
        Box::pin(addresses::check(host))
    }),
    ("dhcp", Some(Part::Agent), |host| {
        Box::pin(dhcp::check(host))
    }),
    ("time", Some(Part::Agent), |host| {
        Box::pin(time_service::check(host))
    }),
    ("loaders", Some(Part::Agent), |host| {
        Box::pin(async { loaders::check(host) })
    }),
    ("tools", Some(Part::Agent), |_| {
        Box::pin(async { tools::check() })
    }),
    ("server", None, |host| Box::pin(server::reaches(host))),
    ("token", None, |host| Box::pin(server::knows(host))),
    ("roles", Some(Part::Server), |host| {
        Box::pin(roles::check(host))
    }),
    ("seals", Some(Part::Server), |host| {
        Box::pin(seals::check(host))
    }),
    ("keys", Some(Part::Server), |host| {
        Box::pin(keys::check(host))
    }),
    ("documents", Some(Part::Server), |host| {
        Box::pin(documents::check(host))
    }),
    ("agents", Some(Part::Server), |host| {
        Box::pin(agents::check(host))
    }),
    ("bmcs", Some(Part::Agent), |host| {
        Box::pin(bmcs::check(host))
    }),
    ("suites", Some(Part::Server), |host| {
        Box::pin(suites::check(host))
    }),
    ("networks", Some(Part::Server), |host| {
        Box::pin(networks::check(host))
    }),
    ("machines", Some(Part::Server), |host| {
        Box::pin(machines::check(host))
    }),
];

const COLUMNS: &[Column] = &[
    Column::new("CHECK", "/check", Form::Text),
    Column::new("VERDICT", "/verdict", Form::State),
    Column::new("FOUND", "/found", Form::Text),
];

/// Runs all checks for this host, and prints the findings.
///
/// # Errors
/// [`Unsound`] when a check failed.
pub(crate) async fn run(args: DoctorArgs, common: &Common) -> anyhow::Result<()> {
    if let Some(unknown) = args
        .only
        .iter()
        .find(|name| CHECKS.iter().all(|(check, ..)| check != name))
    {
        let names: Vec<&str> = CHECKS.iter().map(|(name, ..)| *name).collect();
        let why = format!(
            "unknown check {unknown:?}; known checks: {}",
            names.join(", ")
        );
        return Err(muster_api::client::ClientError::Usage(why).into());
    }
    let chosen = common.connection.chosen()?;
    let client = chosen.client()?;
    let host = Host {
        args,
        url: chosen.url,
        client,
        clock: Clock::System,
        database: OnceCell::new(),
    };
    let mut findings = Vec::new();
    for (name, part, check) in CHECKS {
        let asked = host.args.only.is_empty() || host.args.only.iter().any(|only| only == name);
        if !asked || part.is_some_and(|part| !host.is(part)) {
            continue;
        }
        let found = tokio::time::timeout(PATIENCE, check(&host))
            .await
            .unwrap_or_else(|_| {
                vec![Found::unknown(
                    format!("no answer within {} s", PATIENCE.as_secs()),
                    "try again when the host is less busy",
                )]
            });
        findings.extend(
            found
                .into_iter()
                .map(|Found(verdict, found, todo)| Finding {
                    check: name,
                    verdict,
                    found,
                    todo,
                }),
        );
    }
    let failed = findings
        .iter()
        .filter(|finding| finding.verdict == Verdict::Fail)
        .count();
    match common.output.is_table() {
        true => tell(common, &findings)?,
        false => common.output.print_lines(
            &json!({ "sound": failed == 0, "findings": findings }),
            Vec::new,
        )?,
    }
    if failed > 0 {
        Err(Unsound(failed).into())
    } else {
        Ok(())
    }
}

/// Failures are printed last, next to the prompt.
fn tell(common: &Common, findings: &[Finding]) -> anyhow::Result<()> {
    let rank = |finding: &Finding| match finding.verdict {
        Verdict::Ok => 0,
        Verdict::Unknown => 1,
        Verdict::Warn => 2,
        Verdict::Fail => 3,
    };
    let mut sorted: Vec<&Finding> = findings.iter().collect();
    sorted.sort_by_key(|finding| rank(finding));
    if common.output.is_wide() {
        return common
            .output
            .list_of(&sorted, COLUMNS, jiff::Timestamp::UNIX_EPOCH);
    }
    common.output.print_lines(&json!({}), || {
        let mut lines = Vec::new();
        for finding in sorted
            .iter()
            .filter(|finding| finding.verdict != Verdict::Ok || !common.output.is_quiet())
        {
            let verdict = match finding.verdict {
                Verdict::Ok => "ok     ",
                Verdict::Unknown => "unknown",
                Verdict::Warn => "WARN   ",
                Verdict::Fail => "FAIL   ",
            };
            lines.push(format!("{verdict} {:<10} {}", finding.check, finding.found));
            lines.extend(finding.todo.iter().map(|todo| format!("{:19}→ {todo}", "")));
        }
        lines
    })
}
