//! `muster admin seal-rows`: prints the rows without a valid seal, and seals tokens, people, role
//! bindings and sessions as stored.

use std::str::FromStr;

use anyhow::ensure;
use jiff::SignedDuration;
use muster_server::auth::seals::adopt::{self, Unsealed};
use muster_server::auth::seals::window;
use muster_server::db;

use super::host::{Act, Host, span};

/// The rows to seal.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct SealArgs {
    /// Seal the rows. Without the option, the rows are printed and stay unchanged
    #[arg(long)]
    yes: bool,
    /// Seal a single row: `token:NAME`, `person:NAME` or `role_binding:NAME`. The time in which
    /// rows without a seal count stays unchanged. Repeatable
    #[arg(long, value_name = "KIND:NAME", conflicts_with = "open_for")]
    only: Vec<RowName>,
    /// Let rows without a seal count for a time, such as `12h`, for a rolling upgrade that takes
    /// longer; at most three days
    #[arg(long = "open-for", value_parser = span)]
    open_for: Option<SignedDuration>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RowKind {
    Token,
    Person,
    RoleBinding,
}

/// One row by kind and name.
#[derive(Clone, Debug, PartialEq, Eq)]
struct RowName {
    kind: RowKind,
    name: String,
}

impl FromStr for RowName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wanted = "write token:NAME, person:NAME or role_binding:NAME";
        let (kind, name) = text.split_once(':').ok_or(wanted)?;
        let kind = match kind {
            "token" => RowKind::Token,
            "person" => RowKind::Person,
            "role_binding" => RowKind::RoleBinding,
            _ => return Err(wanted.to_owned()),
        };
        let name = name.to_owned();
        Ok(Self { kind, name })
    }
}

/// Prints the rows without a valid seal. With `--yes`, also seals the rows, and closes the window
/// or opens the window for a time.
///
/// # Errors
/// When the time is too long, a named row is missing, or the database fails.
pub(super) async fn seal(host: &Host, args: SealArgs) -> anyhow::Result<()> {
    let SealArgs {
        yes,
        only,
        open_for,
    } = args;
    let lasts = open_for.unwrap_or_default();
    ensure!(
        !lasts.is_negative() && lasts <= window::LONGEST,
        "--open-for: at most {:#}",
        window::LONGEST
    );
    let Act { mut tx, now } = host.begin().await?;
    let master = &host.keys.master;
    let found = adopt::find_unsealed(&mut tx, master, now).await?;
    let chosen = match only.is_empty() {
        true => found,
        false => choose(found, &only)?,
    };
    print_rows(&chosen);
    if !yes {
        print_line!(
            "without a valid seal, and not sealed: {}. Each row would get its rights: read the names, then run the command again with --yes",
            chosen.describe()
        );
        return Ok(());
    }
    adopt::seal_found(&mut tx, master, &chosen).await?;
    if only.is_empty() {
        window::set(&mut tx, master, now, now + lasts).await?;
    }
    let event = chosen.event(now, &host.actor, "rows.sealed");
    db::events::insert(&mut tx, event).await?;
    tx.commit().await?;
    print_line!("sealed without a change: {}", chosen.describe());
    match (only.is_empty(), lasts.is_positive()) {
        (false, _) => {}
        (true, true) => print_line!("rows without a seal count until {:.0}", now + lasts),
        (true, false) => print_line!("rows without a seal are refused"),
    }
    Ok(())
}

/// Keeps the named rows.
fn choose(found: Unsealed, only: &[RowName]) -> anyhow::Result<Unsealed> {
    let is_named = |kind: RowKind, name: &str| {
        let mut named = only.iter();
        named.any(|row| row.kind == kind && row.name == name)
    };
    let Unsealed {
        mut tokens,
        mut people,
        mut bindings,
        sessions: _,
    } = found;
    tokens.retain(|row| is_named(RowKind::Token, &row.name));
    people.retain(|row| is_named(RowKind::Person, &row.name));
    bindings.retain(|row| is_named(RowKind::RoleBinding, &row.name));
    for RowName { kind, name } in only {
        let is_there = match kind {
            RowKind::Token => tokens.iter().any(|row| row.name == *name),
            RowKind::Person => people.iter().any(|row| row.name == *name),
            RowKind::RoleBinding => bindings.iter().any(|row| row.name == *name),
        };
        ensure!(
            is_there,
            "--only: no such row named {name} lacks a valid seal; run the command without --only for the list"
        );
    }
    Ok(Unsealed {
        tokens,
        people,
        bindings,
        sessions: Vec::new(),
    })
}

fn print_rows(rows: &Unsealed) {
    for token in &rows.tokens {
        print_line!("token {} ({})", token.name, token.role);
    }
    for person in &rows.people {
        print_line!("person {} ({})", person.name, person.role);
    }
    for binding in &rows.bindings {
        print_line!(
            "role binding {} of {} ({})",
            binding.name,
            binding.subject,
            binding.role
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_named_by_its_kind() {
        for (text, kind, name) in [
            ("token:ci", RowKind::Token, "ci"),
            ("person:ada@id.example", RowKind::Person, "ada@id.example"),
            ("role_binding:infra", RowKind::RoleBinding, "infra"),
        ] {
            let name = name.to_owned();
            assert_eq!(text.parse::<RowName>(), Ok(RowName { kind, name }));
        }
        for wrong in ["ci", "session:1", ""] {
            assert!(wrong.parse::<RowName>().is_err(), "{wrong}");
        }
    }
}
