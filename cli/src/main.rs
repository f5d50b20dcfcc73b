//! `muster`: the only binary for installation. Long-running programs are in `programs/`; every other
//! verb is a client of the API.

mod client; // Verbs that are clients of the API
mod duration; // 90s, 15m, 2h
mod gates; // The shipped gates, explained; the linter
mod programs; // server, agent, dev, migrate, doctor
mod reference; // docs/cli.md, from the grammar
mod stack; // Locks a stack against an image's packages

use std::process::ExitCode;

use clap::{ArgMatches, Command, FromArgMatches as _, Parser, Subcommand};

use crate::client::exit::{self, Exit};
use crate::client::session::Common;
use crate::programs::logs::{Level, Logged};

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

/// The verbs beside the clients of the API.
#[derive(Subcommand)]
enum Program {
    /// Run a server replica: API, console, engine
    Server(Logged<programs::server::ServerArgs>),
    /// Run the agent of a site: DHCP, boot, BMCs, SSH, cluster
    Agent(Logged<programs::agent::AgentArgs>),
    /// Run everything in one process, on a private Postgres
    Dev(Logged<programs::dev::DevArgs>),
    /// Bring the database's schema up to this version
    Migrate(programs::migrate::Database),
    /// Make the first token or administrator, beside the database
    #[command(subcommand)]
    Admin(programs::bootstrap::AdminVerb),
    /// The seals of the history: show the newest seal, or compare the history with the seals
    #[command(subcommand)]
    Audit(programs::audit::AuditVerb),
    /// Check the set-up of this host, and report each fault with the next step
    Doctor(Logged<programs::doctor::DoctorArgs>),
    /// Record the output of this machine's tools for new parsers, without serials, UUIDs, addresses and names; only the command behind -- may load the
    /// machine
    Record(programs::record::RecordArgs),
    /// Print the completion script of a shell
    Completion { shell: clap_complete::Shell },
    /// Work on a stack before it is published.
    #[command(subcommand, hide = true)]
    Stack(stack::StackVerb),
}

/// The whole grammar.
fn command() -> Command {
    use clap::CommandFactory as _;
    let mut programs = Cli::command();
    // The noun of stacks has the same verbs. The hidden subcommand only parses the arguments.
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
            if let Some(advice) = exit::advice(&error) {
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
    // Ctrl-C ends a client at once. The server continues the requested work.
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
        Program::Admin(verb) => {
            programs::bootstrap::run(verb, muster_core::clock::Clock::System.now()).await
        }
    }
}
