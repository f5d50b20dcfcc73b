//! The configuration file: several servers, by name. The file is private to its owner.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use muster_api::client::ClientError;
use muster_core::values::Secret;
use serde::{Deserialize, Serialize};

/// `$XDG_CONFIG_HOME/muster/config.toml`, or `~/.config/muster/config.toml`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Config {
    /// The default context.
    pub(super) current: Option<String>,
    #[serde(default)]
    pub(super) contexts: BTreeMap<String, Context>,
}

/// A server of the file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Context {
    pub(super) server: String,
    pub(super) token: Option<Secret>,
    pub(super) token_file: Option<PathBuf>,
}

/// The file in its written form. Secrets have no serialised form elsewhere, so the type is
/// converted here.
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

impl Context {
    /// Returns the token, from the file or from the token file.
    pub(super) fn token(&self) -> Result<Option<Secret>, ClientError> {
        match (&self.token, &self.token_file) {
            (Some(token), _) => Ok(Some(token.clone())),
            (None, Some(path)) => read_token(path).map(Some),
            (None, None) => Ok(None),
        }
    }
}

impl Config {
    /// Returns the content, or an empty configuration without a file.
    ///
    /// # Errors
    /// When the file is malformed, or contains a token and is readable by others.
    pub(super) fn load() -> anyhow::Result<Self> {
        match path() {
            Some(path) => Self::read(&path),
            None => Ok(Self::default()),
        }
    }

    pub(super) fn read(path: &Path) -> anyhow::Result<Self> {
        let text = match std::fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Ok(Self::default());
            }
            Err(error) => return Err(error).with_context(|| path.display().to_string()),
        };
        // The parser's own message would quote the line, and the line may contain a token.
        let broken = |error: toml::de::Error| {
            let at = error
                .span()
                .map(|span| text[..span.start.min(text.len())].lines().count().max(1));
            let line = at.map(|line| format!(", line {line}")).unwrap_or_default();
            ClientError::Usage(format!("{}{line} cannot be understood", path.display()))
        };
        let config: Self = toml::from_str(&text).map_err(broken)?;
        let mode = std::fs::metadata(path)?.permissions().mode();
        if mode & 0o077 != 0 {
            let why = format!(
                "{} may be read by others ({:o}): chmod 600 it",
                path.display(),
                mode & 0o777
            );
            if config
                .contexts
                .values()
                .any(|context| context.token.is_some())
            {
                return Err(ClientError::Usage(format!(
                    "{why}, and make a new token: it holds one"
                ))
                .into());
            }
            eprintln!("muster: {why}");
        }
        Ok(config)
    }

    /// Replaces the file atomically, with mode 0600 from the first byte.
    pub(super) fn write(&self, path: &Path) -> anyhow::Result<()> {
        let contexts = self
            .contexts
            .iter()
            .map(|(name, context)| (name.as_str(), WrittenContext::of(context)))
            .collect();
        let text = toml::to_string(&Written {
            current: self.current.as_deref(),
            contexts,
        })?;
        let folder = path
            .parent()
            .context("the configuration file has no folder")?;
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(folder)?;
        let beside = path.with_extension(format!("toml.{}", std::process::id()));
        let mut file = std::fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&beside)?;
        let done = file
            .write_all(text.as_bytes())
            .and_then(|()| file.sync_all());
        let done = done.and_then(|()| std::fs::rename(&beside, path));
        if done.is_err() {
            std::fs::remove_file(&beside).ok();
        }
        done.with_context(|| format!("write {}", path.display()))
    }

    pub(super) fn find(&self, name: &str) -> Result<&Context, ClientError> {
        let unknown = || {
            ClientError::Usage(format!(
                "context {name:?} does not exist; see muster context list"
            ))
        };
        self.contexts.get(name).ok_or_else(unknown)
    }
}

/// Returns the path; `None` without a home directory.
pub(super) fn path() -> Option<PathBuf> {
    let set = |name| {
        std::env::var_os(name)
            .filter(|value| !value.is_empty())
            .map(PathBuf::from)
    };
    let base = set("XDG_CONFIG_HOME").or_else(|| Some(set("HOME")?.join(".config")))?;
    Some(base.join("muster/config.toml"))
}

/// Returns the token of a token file.
pub(super) fn read_token(path: &PathBuf) -> Result<Secret, ClientError> {
    let text = std::fs::read_to_string(path);
    let text = text.map_err(|source| ClientError::File {
        path: path.display().to_string(),
        source,
    })?;
    match text.trim() {
        "" => Err(ClientError::Usage(format!(
            "the token file {} is empty",
            path.display()
        ))),
        token => Ok(Secret::new(token)),
    }
}
