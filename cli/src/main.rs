//! `muster`: the one binary people install. Programs that run for long are in `programs/`; every other verb is a client of the API.

mod client; // Verbs that are clients of the API
mod programs; // server, agent, dev, migrate
mod stack; // Locks a stack against an image's packages

use std::process::ExitCode;

use clap::{CommandFactory as _, Parser, Subcommand};

#[derive(Parser)]
#[command(name = "muster", version, about = "A node joins the cluster only after it has passed muster.", after_help = client::exit::HELP)]
struct Cli {
    #[command(flatten)]
    common: client::Common,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Run a server replica: API, console, engine.
    Server(programs::server::ServerArgs),
    /// Run the agent of a site: DHCP, boot, BMCs, SSH, cluster.
    Agent(programs::agent::AgentArgs),
    /// Run everything in one process, on a private Postgres.
    Dev(programs::dev::DevArgs),
    /// Bring the database's schema up to this version.
    Migrate(programs::migrate::Database),
    /// Work on a stack before it is published.
    #[command(subcommand)]
    Stack(stack::StackVerb),
    /// Make the first token or administrator, beside the database.
    #[command(subcommand)]
    Admin(programs::bootstrap::AdminVerb),
    /// Hold the history against its seals, beside the database.
    #[command(subcommand)]
    Audit(programs::audit::AuditVerb),
    #[command(flatten)]
    Client(Box<client::ClientVerb>),
    /// Print the completion script of a shell.
    Completion { shell: clap_complete::Shell },
}

fn main() -> ExitCode {
    rustls::crypto::aws_lc_rs::default_provider().install_default().ok();
    let filter = tracing_subscriber::EnvFilter::try_from_env("MUSTER_LOG").unwrap_or_else(|_| "info".into());
    let colour = std::io::IsTerminal::is_terminal(&std::io::stderr());
    tracing_subscriber::fmt().with_env_filter(filter).with_ansi(colour).with_writer(std::io::stderr).init();
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("muster: {error}");
            return ExitCode::FAILURE;
        }
    };
    match runtime.block_on(run(Cli::parse())) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("muster: {error:#}");
            ExitCode::from(client::exit::code(&error))
        }
    }
}

async fn run(cli: Cli) -> anyhow::Result<()> {
    let verb = match cli.verb {
        // Ctrl-C ends these at once: whatever they asked for goes on at the server.
        Verb::Client(verb) => return client::run(cli.common, *verb).await,
        Verb::Completion { shell } => {
            clap_complete::generate(shell, &mut Cli::command(), "muster", &mut std::io::stdout());
            return Ok(());
        }
        program => program,
    };
    let form = if cli.common.is_table() { programs::audit::Form::Lines } else { programs::audit::Form::Json };
    let cancel = programs::until_stopped()?;
    match verb {
        Verb::Client(_) | Verb::Completion { .. } => Ok(()),
        Verb::Server(args) => programs::server::run(args, cancel).await,
        Verb::Agent(args) => programs::agent::run(args, cancel).await,
        Verb::Dev(args) => programs::dev::run(args, cancel).await,
        Verb::Migrate(database) => programs::migrate::run(&database).await,
        Verb::Audit(verb) => match cancel.run_until_cancelled(programs::audit::run(verb, form)).await {
            Some(done) => done,
            None => anyhow::bail!("interrupted"),
        },
        Verb::Stack(verb) => match cancel.run_until_cancelled(stack::run(verb)).await {
            Some(done) => done,
            None => anyhow::bail!("interrupted"),
        },
        Verb::Admin(verb) => programs::bootstrap::run(verb, muster_core::clock::Clock::System.now()).await,
    }
}
