//! The server and the credentials. Flags precede the environment, the environment precedes the
//! configuration file. A context's token is sent
//! only to the context's server.

use std::path::PathBuf;

use clap::Args;
use muster_api::client::{Client, ClientError};
use muster_core::values::Secret;

use super::config::{Config, Context, read_token};

const DEFAULT_URL: &str = "http://127.0.0.1:8080";

/// The choice of server and token, for `--help` and the reference.
pub(crate) const PRECEDENCE: &str = "\
The server's address is the first of: --server; the server of --context; MUSTER_SERVER; the server of MUSTER_CONTEXT; the server of the current \
context; http://127.0.0.1:8080. Without MUSTER_SERVER, MUSTER_URL counts in its place, as for the Terraform provider.

The token is the first of: --token-file; the token of --context; MUSTER_TOKEN; the file named by MUSTER_TOKEN_FILE; the token of the context of \
the server. A context's token is sent only to the context's server. No option takes a token itself, because every user of the host can read \
command lines.";

/// The connection.
#[derive(Args, Clone, Debug)]
pub(crate) struct Connection {
    /// Address of the server, such as `https://muster.example:8080`. Also MUSTER_SERVER
    #[arg(long, value_name = "URL", global = true, help_heading = "Server")]
    pub(super) server: Option<String>,
    /// File with the token. Also MUSTER_TOKEN_FILE; MUSTER_TOKEN has the token itself
    #[arg(long, value_name = "FILE", global = true, help_heading = "Server")]
    pub(super) token_file: Option<PathBuf>,
    /// File with certificate authorities (PEM) of the server, besides those of this machine. Also
    /// MUSTER_CA
    #[arg(long, value_name = "FILE", global = true, help_heading = "Server")]
    ca: Option<PathBuf>,
    /// Name of a server stored by `muster context set`. Also MUSTER_CONTEXT
    #[arg(long, value_name = "NAME", global = true, help_heading = "Server")]
    context: Option<String>,
}

/// The environment, read once.
#[derive(Clone, Debug, Default)]
struct Environment {
    server: Option<String>,
    context: Option<String>,
    token: Option<Secret>,
    token_file: Option<PathBuf>,
    ca: Option<PathBuf>,
}

/// A server and its caller.
pub(crate) struct Chosen {
    pub(crate) url: String,
    token: Option<Secret>,
    ca: Option<PathBuf>,
}

impl Chosen {
    /// Returns the client.
    pub(crate) fn client(&self) -> anyhow::Result<Client> {
        let token = self.token.clone();
        let Some(path) = &self.ca else {
            return Ok(Client::new(&self.url, token)?);
        };
        let pem = std::fs::read(path)
            .map_err(|error| ClientError::Usage(format!("--ca {}: {error}", path.display())))?;
        Ok(Client::trusting(&self.url, token, &pem)?)
    }
}

impl Connection {
    /// Returns the connection described by an incomplete command line.
    pub(super) fn typed(words: &[String]) -> Self {
        let said = |option: &str| {
            let given = words.iter().enumerate().find_map(|(at, word)| {
                match word.strip_prefix(option)? {
                    "" => words
                        .get(at + 1)
                        .filter(|word| *word != "=")
                        .or_else(|| words.get(at + 2))
                        .cloned(),
                    rest => rest.strip_prefix('=').map(str::to_owned),
                }
            });
            given.filter(|value| !value.is_empty())
        };
        let token_file = said("--token-file").map(PathBuf::from);
        Self {
            server: said("--server"),
            token_file,
            ca: said("--ca").map(PathBuf::from),
            context: said("--context"),
        }
    }

    /// Returns the client.
    pub(crate) fn client(&self) -> anyhow::Result<Client> {
        self.chosen()?.client()
    }

    /// Returns the server and the credentials.
    pub(crate) fn chosen(&self) -> anyhow::Result<Chosen> {
        let set = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
        let environment = Environment {
            server: set("MUSTER_SERVER").or_else(|| set("MUSTER_URL")),
            context: set("MUSTER_CONTEXT"),
            token: set("MUSTER_TOKEN").map(Secret::new),
            token_file: set("MUSTER_TOKEN_FILE").map(PathBuf::from),
            ca: set("MUSTER_CA").map(PathBuf::from),
        };
        self.choose(environment, &Config::load()?)
    }

    fn choose(&self, environment: Environment, config: &Config) -> anyhow::Result<Chosen> {
        let named = |name: &str| -> Result<Context, ClientError> {
            let unknown = || {
                ClientError::Usage(format!(
                    "context {name:?} does not exist; see muster context list"
                ))
            };
            config.contexts.get(name).cloned().ok_or_else(unknown)
        };
        let by_flag = self.context.as_deref().map(named).transpose()?;
        let context = match (&self.server, &by_flag, &environment.server) {
            (Some(_), ..) | (None, None, Some(_)) => None,
            (None, Some(context), _) => Some(context.clone()),
            (None, None, None) => environment
                .context
                .as_deref()
                .or(config.current.as_deref())
                .map(named)
                .transpose()?,
        };
        let url = match (&self.server, &context) {
            (Some(url), _) => url.clone(),
            (None, Some(context)) => context.server.clone(),
            (None, None) => environment.server.unwrap_or_else(|| DEFAULT_URL.to_owned()),
        };
        let flagged = context.as_ref().filter(|_| by_flag.is_some());
        let token = match (
            &self.token_file,
            flagged.map(Context::token).transpose()?.flatten(),
        ) {
            (Some(path), _) => Some(read_token(path)?),
            (None, Some(token)) => Some(token),
            (None, None) => match (environment.token, &environment.token_file) {
                (Some(token), _) => Some(token),
                (None, Some(path)) => Some(read_token(path)?),
                (None, None) => context.as_ref().map(Context::token).transpose()?.flatten(),
            },
        };
        let ca = self.ca.clone().or(environment.ca);
        Ok(Chosen { url, token, ca })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> Config {
        let context = |server: &str, token: &str| Context {
            server: server.into(),
            token: Some(Secret::new(token)),
            token_file: None,
        };
        let contexts = [
            ("lab", context("http://lab", "of-lab")),
            ("prod", context("http://prod", "of-prod")),
        ];
        let contexts = contexts
            .map(|(name, context)| (name.to_owned(), context))
            .into();
        Config {
            current: Some("lab".into()),
            contexts,
        }
    }

    fn chosen(
        server: Option<&str>,
        context: Option<&str>,
        environment: Environment,
    ) -> (String, Option<String>) {
        let connection = Connection {
            server: server.map(str::to_owned),
            context: context.map(str::to_owned),
            token_file: None,
            ca: None,
        };
        let chosen = connection.choose(environment, &config()).unwrap();
        (
            chosen.url,
            chosen.token.map(|token| token.reveal().to_owned()),
        )
    }

    fn pair(url: &str, token: &str) -> (String, Option<String>) {
        (
            url.to_owned(),
            Some(token.to_owned()).filter(|token| !token.is_empty()),
        )
    }

    #[test]
    fn a_flag_goes_before_the_environment_and_that_before_the_file() {
        let environment = || Environment {
            server: Some("http://env".into()),
            token: Some(Secret::new("of-env")),
            ..Environment::default()
        };
        assert_eq!(
            chosen(None, None, Environment::default()),
            pair("http://lab", "of-lab")
        );
        assert_eq!(
            chosen(None, None, environment()),
            pair("http://env", "of-env")
        );
        assert_eq!(
            chosen(None, Some("prod"), environment()),
            pair("http://prod", "of-prod")
        );
        assert_eq!(
            chosen(Some("http://flag"), Some("prod"), environment()),
            pair("http://flag", "of-env")
        );
        let context = Environment {
            context: Some("prod".into()),
            ..Environment::default()
        };
        assert_eq!(chosen(None, None, context), pair("http://prod", "of-prod"));
    }

    #[test]
    fn a_contexts_token_is_sent_to_its_own_server_only() {
        assert_eq!(
            chosen(Some("http://elsewhere"), None, Environment::default()),
            pair("http://elsewhere", "")
        );
        let environment = Environment {
            server: Some("http://elsewhere".into()),
            ..Environment::default()
        };
        assert_eq!(
            chosen(None, None, environment),
            pair("http://elsewhere", "")
        );
        let connection = Connection {
            server: None,
            context: Some("no".into()),
            token_file: None,
            ca: None,
        };
        assert!(
            connection
                .choose(Environment::default(), &config())
                .is_err()
        );
    }
}
