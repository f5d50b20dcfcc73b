//! Which server, and as whom: by flags, by environment, or by a context of the configuration file, in this order.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::Context as _;
use clap::Args;
use muster_api::client::{Client, ClientError};
use muster_core::values::Secret;
use serde::Deserialize;

const DEFAULT_URL: &str = "http://127.0.0.1:8080";

/// How to reach the server.
#[derive(Args, Clone, Debug)]
pub(crate) struct Connection {
    /// The server's address; http://127.0.0.1:8080 when nothing says otherwise.
    #[arg(long, env = "MUSTER_URL", global = true, help_heading = "Server")]
    url: Option<String>,
    /// A file that holds a token and nothing else; the variable MUSTER_TOKEN holds the token itself.
    #[arg(long, env = "MUSTER_TOKEN_FILE", global = true, help_heading = "Server")]
    token_file: Option<PathBuf>,
    /// A context of ~/.config/muster/config.toml.
    #[arg(long, env = "MUSTER_CONTEXT", global = true, help_heading = "Server")]
    context: Option<String>,
}

/// `~/.config/muster/config.toml`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Config {
    /// The context that is used when none is named.
    current: Option<String>,
    #[serde(default)]
    contexts: BTreeMap<String, Server>,
}

/// One server of the configuration file.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Server {
    url: Option<String>,
    token: Option<Secret>,
    token_file: Option<PathBuf>,
}

impl Connection {
    /// The client for it.
    pub(crate) fn client(&self) -> anyhow::Result<Client> {
        let configured = self.configured()?;
        let url = self.url.clone().or(configured.url).unwrap_or_else(|| DEFAULT_URL.to_owned());
        let environment = std::env::var("MUSTER_TOKEN").ok().filter(|token| !token.is_empty()).map(Secret::new);
        let token = match (&self.token_file, environment, configured.token, &configured.token_file) {
            (Some(path), ..) | (None, None, None, Some(path)) => Some(read(path)?),
            (None, Some(token), ..) | (None, None, Some(token), _) => Some(token),
            (None, None, None, None) => None,
        };
        Ok(Client::new(&url, token)?)
    }

    fn configured(&self) -> anyhow::Result<Server> {
        let path = config_path();
        let config: Config = match path.as_ref().map(std::fs::read_to_string) {
            Some(Ok(text)) => toml::from_str(&text).with_context(|| format!("{:?} cannot be read", path.as_deref()))?,
            _ => Config::default(),
        };
        let Some(name) = self.context.as_ref().or(config.current.as_ref()) else { return Ok(Server::default()) };
        let unknown = || ClientError::Usage(format!("there is no context {name:?} in the configuration file"));
        Ok(config.contexts.get(name).cloned().ok_or_else(unknown)?)
    }
}

fn config_path() -> Option<PathBuf> {
    let base = std::env::var_os("XDG_CONFIG_HOME").map(PathBuf::from);
    let base = base.or_else(|| std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".config")))?;
    Some(base.join("muster/config.toml"))
}

fn read(path: &PathBuf) -> Result<Secret, ClientError> {
    let text = std::fs::read_to_string(path);
    let text = text.map_err(|source| ClientError::File { path: path.display().to_string(), source })?;
    Ok(Secret::new(text.trim()))
}
