//! `muster context`: several servers, by name, in a file that only its owner reads.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::Subcommand;
use muster_api::client::{Client, ClientError};
use muster_core::values::Secret;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::connection::{Connection, read};
use super::output::{Column, Form, Output};

/// `$XDG_CONFIG_HOME/muster/config.toml`, or `~/.config/muster/config.toml`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Config {
    /// The context that is used when none is named.
    pub(super) current: Option<String>,
    #[serde(default)]
    pub(super) contexts: BTreeMap<String, Context>,
}

/// One server of the file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Context {
    pub(super) server: String,
    pub(super) token: Option<Secret>,
    pub(super) token_file: Option<PathBuf>,
}

/// The file as it is written: secrets are written nowhere else, so their type has no way to.
#[derive(Serialize)]
struct Written<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    current: Option<&'a str>,
    contexts: BTreeMap<&'a str, WrittenContext<'a>>,
}

#[derive(Serialize)]
struct WrittenContext<'a> {
    server: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    token: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    token_file: Option<&'a Path>,
}

impl<'a> WrittenContext<'a> {
    fn of(context: &'a Context) -> Self {
        Self {
            server: &context.server,
            token: context.token.as_ref().map(Secret::reveal),
            token_file: context.token_file.as_deref(),
        }
    }
}

/// What can be done with contexts.
#[derive(Debug, Subcommand)]
pub(crate) enum ContextVerb {
    /// List the servers that are written down.
    List,
    /// Use this server from now on, where nothing else is said.
    Use { name: String },
    /// Write a server down, or change what is named of it: --server, and --token-file or --token-stdin.
    Set {
        name: String,
        /// Read the token from standard input, and keep it in the configuration file. With --token-file, that file is read each time instead.
        #[arg(long, conflicts_with = "token_file")]
        token_stdin: bool,
        /// Use it from now on.
        #[arg(long)]
        r#use: bool,
    },
    /// Forget a server.
    Delete { name: String },
    /// Show a server, without its token; the current one when none is named.
    Show { name: Option<String> },
}

impl Context {
    /// Its token, wherever it is kept.
    pub(super) fn token(&self) -> Result<Option<Secret>, ClientError> {
        match (&self.token, &self.token_file) {
            (Some(token), _) => Ok(Some(token.clone())),
            (None, Some(path)) => read(path).map(Some),
            (None, None) => Ok(None),
        }
    }
}

impl Config {
    /// The file's content; nothing where there is no file.
    ///
    /// # Errors
    /// When it cannot be understood, or holds a token that others may read.
    pub(super) fn load() -> anyhow::Result<Self> {
        match path() {
            Some(path) => Self::read(&path),
            None => Ok(Self::default()),
        }
    }

    fn read(path: &Path) -> anyhow::Result<Self> {
        let text = match std::fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Self::default()),
            Err(error) => return Err(error).with_context(|| path.display().to_string()),
        };
        // The parser's own message would show the line, and the line may hold a token.
        let broken = |error: toml::de::Error| {
            let at = error.span().map(|span| text[..span.start.min(text.len())].lines().count().max(1));
            let line = at.map(|line| format!(", line {line}")).unwrap_or_default();
            ClientError::Usage(format!("{}{line} cannot be understood", path.display()))
        };
        let config: Self = toml::from_str(&text).map_err(broken)?;
        let mode = std::fs::metadata(path)?.permissions().mode();
        if mode & 0o077 != 0 {
            let why = format!("{} may be read by others ({:o}): chmod 600 it", path.display(), mode & 0o777);
            if config.contexts.values().any(|context| context.token.is_some()) {
                return Err(ClientError::Usage(format!("{why}, and make a new token: it holds one")).into());
            }
            eprintln!("muster: {why}");
        }
        Ok(config)
    }

    /// Writes it whole and swaps it in, mode 0600 from its first byte on.
    fn write(&self, path: &Path) -> anyhow::Result<()> {
        let contexts =
            self.contexts.iter().map(|(name, context)| (name.as_str(), WrittenContext::of(context))).collect();
        let text = toml::to_string(&Written { current: self.current.as_deref(), contexts })?;
        let folder = path.parent().context("the configuration file has no folder")?;
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        let beside = path.with_extension(format!("toml.{}", std::process::id()));
        let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&beside)?;
        let done = file.write_all(text.as_bytes()).and_then(|()| file.sync_all());
        let done = done.and_then(|()| std::fs::rename(&beside, path));
        if done.is_err() {
            std::fs::remove_file(&beside).ok();
        }
        done.with_context(|| format!("write {}", path.display()))
    }

    fn find(&self, name: &str) -> Result<&Context, ClientError> {
        let unknown = || ClientError::Usage(format!("there is no context {name:?}; see muster context list"));
        self.contexts.get(name).ok_or_else(unknown)
    }
}

fn path() -> Option<PathBuf> {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let base = set("XDG_CONFIG_HOME").or_else(|| Some(set("HOME")?.join(".config")))?;
    Some(base.join("muster/config.toml"))
}

/// Runs a verb.
///
/// # Errors
/// When the file cannot be read or written, or there is no such context.
pub(super) fn run(output: Output, connection: &Connection, verb: ContextVerb) -> anyhow::Result<()> {
    let path = path().context("neither XDG_CONFIG_HOME nor HOME is set: there is no place for a configuration file")?;
    let mut config = Config::read(&path)?;
    match verb {
        ContextVerb::List => return list(output, &config),
        ContextVerb::Show { name } => {
            let name = name.or(config.current.clone()).context("no context is current; muster context use NAME")?;
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
        ContextVerb::Set { name, token_stdin, r#use } => {
            let (url, from_file) = (connection.server.clone(), connection.token_file.clone());
            let before = config.contexts.get(&name);
            let moved = before.is_some_and(|before| url.as_ref().is_some_and(|url| *url != before.server));
            let url = url.or_else(|| before.map(|context| context.server.clone()));
            let server = url.ok_or_else(|| ClientError::Usage("a new context needs --server".into()))?;
            Client::new(&server, None)?;
            // Another server does not get the token of the one before.
            let kept = before.filter(|_| !moved).map(|context| (context.token.clone(), context.token_file.clone()));
            let (token, token_file) = match (token_stdin, from_file) {
                (true, _) => (Some(typed()?), None),
                (false, Some(file)) => (None, Some(std::path::absolute(file)?)),
                (false, None) => kept.unwrap_or_default(),
            };
            config.contexts.insert(name.clone(), Context { server, token, token_file });
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
    anyhow::ensure!(!line.trim().is_empty(), ClientError::Usage("no token came on standard input".into()));
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
    let items: Vec<_> = config.contexts.iter().map(|(name, context)| shown(name, context, current)).collect();
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
