//! `muster`: the single binary for installation. Long-running programs are in `programs/`; every
//! other subcommand is a client of the API.

#![deny(
    clippy::print_stdout,
    reason = "print_line! ends quietly when the reader goes away"
)]

#[macro_use]
mod printing; // Standard output

mod client; // Subcommands that call the API
mod duration; // 90s, 15m, 2h
mod gates; // Suites and profiles shipped with Muster, and the linter
mod images; // Keys of release owners, and signatures of images
mod programs; // server, agent, dev, migrate, doctor
mod reference; // docs/cli.md, from the grammar
mod stack; // Locks a stack against an image's packages

use std::borrow::Cow;
use std::process::ExitCode;

use clap::{ArgMatches, Command, FromArgMatches as _, Parser, Subcommand};

use crate::client::exit::{self, Exit};
use crate::client::session::Common;
use crate::programs::logs::{Level, Logged};
use crate::programs::startup;

#[derive(Parser)]
#[command(
    name = "muster",
    version,
    about = "A node joins the cluster only after it has passed muster."
)]
struct Cli {
    #[command(subcommand)]
    program: Program,
}

/// Subcommands that do not call the API.
#[derive(Subcommand)]
enum Program {
    /// Start a server replica: API, console, engine
    Server(Logged<programs::server::ServerArgs>),
    /// Start the agent of a site: DHCP, boot, BMCs, SSH, cluster
    Agent(Logged<programs::agent::AgentArgs>),
    /// Start everything in one process, on a private Postgres
    Dev(Logged<programs::dev::DevArgs>),
    /// Migrate the database's schema to this version
    Migrate(programs::migrate::Database),
    /// Act as an administrator on the server's host: requires the database and the master key, and
    /// is an event
    #[command(subcommand)]
    Admin(programs::bootstrap::AdminVerb),
    /// Verify the sealed event history, or show the newest seal
    #[command(subcommand)]
    Audit(programs::audit::AuditVerb),
    /// Check this host's set-up, and print the repair for each problem
    Doctor(Logged<programs::doctor::DoctorArgs>),
    /// Record the output of this machine's tools for new parsers. Serials, UUIDs, addresses and
    /// names are removed. Only the command after -- may put load
    /// on the machine
    Record(programs::record::RecordArgs),
    /// Print the completion script for a shell
    Completion { shell: clap_complete::Shell },
    /// Work on a stack before publication.
    #[command(subcommand, hide = true)]
    Stack(stack::StackVerb),
}

/// The whole grammar.
fn command() -> Command {
    use clap::CommandFactory as _;
    let mut programs = Cli::command();
    // The stack subcommands of the API are separate. Here the entries only describe the grammar.
    let kept: Vec<Command> = programs
        .get_subcommands()
        .filter(|found| found.get_name() != "stack")
        .cloned()
        .collect();
    programs = Command::new("muster")
        .version(env!("CARGO_PKG_VERSION"))
        .about("A node joins the cluster only after it has passed muster.")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommands(kept);
    let programs = programs.mut_subcommand("agent", client::grammar::agent);
    let programs = programs.mut_subcommand("audit", client::grammar::audit);
    client::grammar::grouped(client::grammar::add(programs))
}

fn main() -> ExitCode {
    rustls::crypto::aws_lc_rs::default_provider()
        .install_default()
        .ok();
    let matches = command().get_matches();
    let level = programs::logs::start(&matches);
    let runtime = match tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
    {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("muster: {error}");
            return ExitCode::FAILURE;
        }
    };
    match runtime.block_on(run(&matches, level)) {
        Ok(()) => ExitCode::from(Exit::Done.code()),
        Err(error) => {
            eprintln!("muster: {}", client::output::clean(&format!("{error:#}")));
            let advice = exit::advice(&error).map(Cow::from);
            if let Some(advice) = advice.or_else(|| startup::advice(&error).map(Cow::from)) {
                eprintln!("{advice}");
            }
            ExitCode::from(exit::of(&error).code())
        }
    }
}

async fn run(matches: &ArgMatches, level: Level) -> anyhow::Result<()> {
    if let Some((client::completing::VERB, typed)) = matches.subcommand() {
        let words: Vec<String> = typed
            .get_many("words")
            .into_iter()
            .flatten()
            .cloned()
            .collect();
        client::completing::run(command(), &words).await;
        return Ok(());
    }
    let common = Common::from_arg_matches(matches)?;
    // Ctrl-C ends these subcommands at once. Requested operations continue on the server.
    if let Some(done) = client::run(&common, matches).await {
        return done;
    }
    let program = Program::from_arg_matches(matches)?;
    if let Program::Completion { shell } = program {
        client::completing::print(shell, &mut command());
        return Ok(());
    }
    let form = if common.output.is_table() {
        programs::audit::Form::Lines
    } else {
        programs::audit::Form::Json
    };
    let cancel = programs::until_stopped()?;
    level.watch()?;
    match program {
        Program::Completion { .. } => Ok(()),
        Program::Record(args) => programs::record::run(&args),
        Program::Server(args) => programs::server::run(args.program, cancel).await,
        Program::Agent(args) => programs::agent::run(args.program, cancel).await,
        Program::Dev(args) => programs::dev::run(args.program, cancel).await,
        Program::Migrate(database) => programs::migrate::run(&database).await,
        Program::Audit(verb) => match cancel
            .run_until_cancelled(programs::audit::run(verb, form))
            .await
        {
            Some(done) => done,
            None => anyhow::bail!("interrupted"),
        },
        Program::Doctor(args) => match cancel
            .run_until_cancelled(programs::doctor::run(args.program, &common))
            .await
        {
            Some(done) => done,
            None => anyhow::bail!("interrupted"),
        },
        Program::Stack(verb) => match cancel
            .run_until_cancelled(stack::run(verb, common.output))
            .await
        {
            Some(done) => done,
            None => anyhow::bail!("interrupted"),
        },
        Program::Admin(verb) => programs::bootstrap::run(verb).await,
    }
}
