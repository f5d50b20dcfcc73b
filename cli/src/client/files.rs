//! Reads documents from files: YAML or JSON; a suite, hardware profile or stack in TOML; and the
//! shipped documents.

use std::path::Path;

use anyhow::Context as _;
use muster_api::client::ClientError;
use muster_core::gates::{PROFILES, SUITES, Shipped};
use serde_json::{Map, Value, json};

use super::exit::{Ended, Exit};

/// The largest file in bytes.
const LARGEST: u64 = 64 << 20;
/// Prefix of a shipped suite or profile in place of a file.
const SHIPPED: &str = "shipped:";

/// The content of a file.
pub(super) enum Held {
    /// YAML, or JSON as a subset.
    Yaml(String),
    /// TOML; `stem` is the file name without extension.
    Toml {
        members: Map<String, Value>,
        stem: String,
    },
}

/// Reads a file; `-` is standard input, `shipped:NAME` a shipped suite or profile.
///
/// # Errors
/// When the file is unreadable, larger than 64 MiB, or malformed TOML.
pub(super) fn read(file: &Path) -> anyhow::Result<Held> {
    if let Some(name) = file.to_str().and_then(|file| file.strip_prefix(SHIPPED)) {
        return Ok(Held::Toml {
            members: table(shipped(name)?.text)?,
            stem: name.to_owned(),
        });
    }
    let text = text(file).with_context(|| format!("{} cannot be read", file.display()))?;
    match file.extension().is_some_and(|ending| ending == "toml") {
        true => {
            let members = table(&text).with_context(|| file.display().to_string())?;
            let stem = file
                .file_stem()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned();
            Ok(Held::Toml { members, stem })
        }
        false => Ok(Held::Yaml(text)),
    }
}

/// Returns the shipped suite or profile with this name.
///
/// # Errors
/// With the available names.
pub(crate) fn shipped(name: &str) -> anyhow::Result<&'static Shipped> {
    let found = Shipped::find(SUITES, name).or_else(|| Shipped::find(PROFILES, name));
    found.ok_or_else(|| {
        let names: Vec<&str> = SUITES
            .iter()
            .chain(PROFILES)
            .map(|shipped| shipped.name)
            .collect();
        let told = format!(
            "no suite or profile {name:?} comes with Muster; there are {}",
            names.join(", ")
        );
        Ended {
            exit: Exit::NotFound,
            told,
        }
        .into()
    })
}

/// Returns the document of a TOML file, with kind, name and spec. The content decides the kind. A
/// suite has a name inside; other documents have the
/// name of the file.
///
/// # Errors
/// When the content is of no known kind.
pub(super) fn document(members: Map<String, Value>, stem: String) -> anyhow::Result<Value> {
    let kind = match members {
        _ if members.contains_key("spec") => return Ok(Value::Object(members)),
        _ if members.contains_key("root_disk") => "hardware_profile",
        _ if members.get("gates").is_some_and(Value::is_array) => "suite",
        _ if members.contains_key("image") => "stack",
        _ => {
            let what =
                "neither a suite ([[gates]]), a hardware profile ([root_disk]) nor a stack (image)";
            return Err(ClientError::Usage(format!("{stem} is {what}")).into());
        }
    };
    let own = members
        .get("name")
        .and_then(Value::as_str)
        .filter(|_| kind == "suite")
        .map(str::to_owned);
    Ok(json!({ "kind": kind, "name": own.unwrap_or(stem), "spec": members }))
}

fn table(text: &str) -> anyhow::Result<Map<String, Value>> {
    Ok(toml::from_str(text)?)
}

fn text(file: &Path) -> anyhow::Result<String> {
    use std::io::Read as _;
    let mut text = String::new();
    let source: Box<dyn std::io::Read> = match file.to_str() {
        Some("-") => Box::new(std::io::stdin()),
        _ => Box::new(std::fs::File::open(file)?),
    };
    source.take(LARGEST + 1).read_to_string(&mut text)?;
    anyhow::ensure!(
        text.len() as u64 <= LARGEST,
        "the file is larger than {} MiB",
        LARGEST >> 20
    );
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_that_comes_with_muster_says_what_it_is() {
        for (kind, all) in [("suite", SUITES), ("hardware_profile", PROFILES)] {
            for shipped in all {
                let document = document(table(shipped.text).unwrap(), "file".into()).unwrap();
                assert_eq!(document["kind"], kind, "{}", shipped.name);
                let name = if kind == "suite" {
                    shipped.name
                } else {
                    "file"
                };
                assert_eq!(document["name"], name);
            }
        }
        let stack = table(include_str!("../../../stacks/cpu-slurm.toml")).unwrap();
        assert_eq!(
            document(stack, "cpu-slurm".into()).unwrap()["kind"],
            "stack"
        );
        assert!(document(table("colour = \"red\"").unwrap(), "x".into()).is_err());
    }
}
