//! `muster context`: the servers of the configuration file.

use anyhow::Context as _;
use clap::Subcommand;
use muster_api::client::{Client, ClientError};
use muster_core::values::Secret;
use serde_json::json;

use super::config::{Config, Context, path};
use super::connection::Connection;
use super::output::{Column, Form, Output};

/// Subcommands of contexts.
#[derive(Debug, Subcommand)]
pub(crate) enum ContextVerb {
    /// List the stored servers
    List,
    /// Make a server the default
    Use { name: String },
    /// Store a server, or change a stored server: --server, and --token-file or --token-stdin
    Set {
        name: String,
        /// Store the token read from standard input in the configuration file. With --token-file,
        /// the file is read on each use instead
        #[arg(long, conflicts_with = "token_file")]
        token_stdin: bool,
        /// Make the server the default
        #[arg(long)]
        r#use: bool,
    },
    /// Remove a server
    Delete { name: String },
    /// Show a server without its token. Default: the current server
    Show { name: Option<String> },
}

/// Executes a subcommand.
///
/// # Errors
/// When the file is unreadable or not writable, or the context is unknown.
pub(super) fn run(
    output: Output,
    connection: &Connection,
    verb: ContextVerb,
) -> anyhow::Result<()> {
    let path = path().context(
        "neither XDG_CONFIG_HOME nor HOME is set, so the configuration file has no path",
    )?;
    let mut config = Config::read(&path)?;
    match verb {
        ContextVerb::List => return list(output, &config),
        ContextVerb::Show { name } => {
            let name = name
                .or(config.current.clone())
                .context("no context is current; muster context use NAME")?;
            let shown = shown(&name, config.find(&name)?, config.current.as_deref());
            return output.one(&shown, COLUMNS, jiff::Timestamp::UNIX_EPOCH);
        }
        ContextVerb::Use { name } => {
            config.find(&name)?;
            config.current = Some(name);
        }
        ContextVerb::Delete { name } => {
            config.find(&name)?;
            config.contexts.remove(&name);
            config.current = config.current.filter(|current| *current != name);
        }
        ContextVerb::Set {
            name,
            token_stdin,
            r#use,
        } => {
            let (url, from_file) = (connection.server.clone(), connection.token_file.clone());
            let before = config.contexts.get(&name);
            let moved =
                before.is_some_and(|before| url.as_ref().is_some_and(|url| *url != before.server));
            let url = url.or_else(|| before.map(|context| context.server.clone()));
            let server =
                url.ok_or_else(|| ClientError::Usage("a new context needs --server".into()))?;
            Client::new(&server, None)?;
            // The token of the previous server is not sent to another server.
            let kept = before
                .filter(|_| !moved)
                .map(|context| (context.token.clone(), context.token_file.clone()));
            let (token, token_file) = match (token_stdin, from_file) {
                (true, _) => (Some(typed()?), None),
                (false, Some(file)) => (None, Some(std::path::absolute(file)?)),
                (false, None) => kept.unwrap_or_default(),
            };
            config.contexts.insert(
                name.clone(),
                Context {
                    server,
                    token,
                    token_file,
                },
            );
            if r#use || config.current.is_none() {
                config.current = Some(name);
            }
        }
    }
    config.write(&path)
}

fn typed() -> anyhow::Result<Secret> {
    let mut line = String::new();
    std::io::stdin().read_line(&mut line)?;
    anyhow::ensure!(
        !line.trim().is_empty(),
        ClientError::Usage("no token came on standard input".into())
    );
    Ok(Secret::new(line.trim()))
}

const COLUMNS: &[Column] = &[
    Column::new("CURRENT", "/current", Form::Text),
    Column::new("NAME", "/name", Form::Text),
    Column::new("SERVER", "/server", Form::Text),
    Column::new("TOKEN", "/token", Form::Text),
];

fn list(output: Output, config: &Config) -> anyhow::Result<()> {
    let current = config.current.as_deref();
    let items: Vec<_> = config
        .contexts
        .iter()
        .map(|(name, context)| shown(name, context, current))
        .collect();
    if items.is_empty() {
        output.note("no contexts; muster context set NAME --server https://…");
    }
    output.list(&items, COLUMNS, jiff::Timestamp::UNIX_EPOCH)
}

fn shown(name: &str, context: &Context, current: Option<&str>) -> serde_json::Value {
    let token = match (&context.token, &context.token_file) {
        (Some(_), _) => "kept".to_owned(),
        (None, Some(path)) => path.display().to_string(),
        (None, None) => "none".to_owned(),
    };
    json!({ "name": name, "server": context.server, "token": token, "current": if current == Some(name) { "*" } else { "" } })
}
