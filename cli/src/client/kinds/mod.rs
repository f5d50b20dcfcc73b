//! The nouns for kinds of the API, and their shared verbs. The implementation is shared;
//! differences are in [`table`].

pub(crate) mod read; // list, get, describe
mod table; // The kinds: verbs, parameters, columns
mod write; // create, set, delete

use clap::builder::Resettable;
use clap::{Arg, ArgMatches, Args as _, Command, FromArgMatches as _};
use muster_api::kind;

use self::read::ListArgs;
use super::output::{Column, Form};
use super::session::Session;

/// A kind on the command line.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Noun {
    /// The word in documents: `hardware_profile`.
    pub(crate) kind: &'static str,
    /// The word in paths: `hardware_profiles`.
    pub(crate) collection: &'static str,
    pub(crate) about: &'static str,
    can: &'static [Can],
    /// Additional parameters of the kind's list: name and help.
    parameters: &'static [(&'static str, &'static str)],
    pub(crate) columns: &'static [Column],
}

/// The operations of the API on a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Can {
    /// A paged list.
    Pages,
    Get,
    /// Without a spec: only `get`.
    Show,
    Write,
    Delete,
}

/// A kind without its own row.
const PLAIN: &[Column] = &[
    Column::new("NAME", "/name", Form::Text),
    Column::new("AGE", "/created_at", Form::Age),
    Column::wide("ID", "/id", Form::Text),
];

/// Every kind as a noun. A kind missing in the table has the verbs common to all kinds.
pub(crate) fn nouns() -> Vec<Noun> {
    let others = kind::COLLECTIONS
        .into_iter()
        .filter(|(kind, _)| table::NOUNS.iter().all(|noun| noun.kind != *kind));
    let other = |(kind, collection)| Noun {
        kind,
        collection,
        about: "Objects of this kind",
        can: &[Can::Pages, Can::Get, Can::Write, Can::Delete],
        parameters: &[],
        columns: PLAIN,
    };
    table::NOUNS
        .iter()
        .copied()
        .chain(others.map(other))
        .collect()
}

/// Returns the noun of a kind in the table.
pub(crate) fn noun(kind: &str) -> Option<Noun> {
    nouns().into_iter().find(|noun| noun.kind == kind)
}

/// Returns the columns of a kind.
pub(crate) fn columns(kind: &str) -> &'static [Column] {
    noun(kind).map_or(PLAIN, |noun| noun.columns)
}

impl Noun {
    /// Builds the command with the shared verbs; [`super::grammar`] adds the others.
    pub(crate) fn command(&self) -> Command {
        // The grammar lives until the program ends.
        let dashed = |word: &str| -> &'static str { word.replace('_', "-").leak() };
        let aliases = [self.collection, dashed(self.collection), dashed(self.kind)];
        let aliases: std::collections::BTreeSet<&str> = aliases
            .into_iter()
            .filter(|alias| *alias != self.kind)
            .collect();
        let mut command = Command::new(self.kind)
            .about(self.about)
            .aliases(aliases)
            .subcommand_required(true);
        let one = self.words();
        let verb = |word: &'static str, about: String, part: fn(Command) -> Command| {
            with(Command::new(word).about(about), part)
        };
        for can in self.can {
            command = match can {
                Can::Pages => command.subcommand(self.list()),
                Can::Get => {
                    let (shown, told) = (
                        format!("Show {one} by name"),
                        format!("Show all details of {one}"),
                    );
                    command
                        .subcommand(verb("get", shown, read::GetArgs::augment_args))
                        .subcommand(verb("describe", told, read::DescribeArgs::augment_args))
                }
                Can::Show => command.subcommand(verb(
                    "get",
                    format!("Show {one}"),
                    read::GetArgs::augment_args,
                )),
                Can::Write => {
                    let created = format!("Create {one}; fails if the name is taken");
                    let set = format!("Create {one}, or change the given values");
                    command
                        .subcommand(verb("create", created, write::CreateArgs::augment_args))
                        .subcommand(verb("set", set, write::SetArgs::augment_args))
                }
                Can::Delete => {
                    let removed = format!("Remove {one}; fails while another object refers to it");
                    command.subcommand(verb("delete", removed, write::DeleteArgs::augment_args))
                }
            };
        }
        command
    }

    fn list(&self) -> Command {
        let list =
            Command::new("list").about(format!("List {}", self.collection.replace('_', " ")));
        let parameter = |(name, help): &(&'static str, &'static str)| {
            Arg::new(*name)
                .long(*name)
                .help(*help)
                .value_name(&*name.to_uppercase().leak())
        };
        with(
            list.args(self.parameters.iter().map(parameter)),
            ListArgs::augment_args,
        )
    }

    /// `a hardware profile`.
    fn words(&self) -> String {
        let words = self.kind.replace('_', " ");
        let article = if words.starts_with(['a', 'e', 'i', 'o']) {
            "an"
        } else {
            "a"
        };
        format!("{article} {words}")
    }

    /// Executes a shared verb; `None` for other verbs.
    pub(crate) async fn run(
        &self,
        session: &Session,
        matches: &ArgMatches,
    ) -> Option<anyhow::Result<()>> {
        let (verb, matches) = matches.subcommand()?;
        let known = |can: &[Can]| self.can.iter().any(|mine| can.contains(mine));
        Some(match verb {
            "list" if known(&[Can::Pages]) => self.run_list(session, matches).await,
            "get" if known(&[Can::Get, Can::Show]) => {
                match read::GetArgs::from_arg_matches(matches) {
                    Ok(args) => read::get(session, self, args).await,
                    Err(error) => Err(error.into()),
                }
            }
            "describe" if known(&[Can::Get]) => match read::DescribeArgs::from_arg_matches(matches)
            {
                Ok(args) => read::describe(session, self, &args).await,
                Err(error) => Err(error.into()),
            },
            "create" if known(&[Can::Write]) => {
                match write::CreateArgs::from_arg_matches(matches) {
                    Ok(args) => write::create(session, self, &args).await,
                    Err(error) => Err(error.into()),
                }
            }
            "set" if known(&[Can::Write]) => match write::SetArgs::from_arg_matches(matches) {
                Ok(args) => write::set(session, self, &args).await,
                Err(error) => Err(error.into()),
            },
            "delete" if known(&[Can::Delete]) => match write::DeleteArgs::from_arg_matches(matches)
            {
                Ok(args) => write::delete(session, self, args).await,
                Err(error) => Err(error.into()),
            },
            _ => return None,
        })
    }

    async fn run_list(&self, session: &Session, matches: &ArgMatches) -> anyhow::Result<()> {
        let given = |(name, _): &(&'static str, &str)| {
            Some((*name, matches.get_one::<String>(name)?.clone()))
        };
        let parameters = self.parameters.iter().filter_map(given).collect();
        let args = ListArgs::from_arg_matches(matches)?;
        read::list(session, &[self.collection], self.columns, &args, parameters).await
    }
}

/// Adds derived arguments or verbs and keeps the command's help; deriving alone would replace the
/// help.
pub(crate) fn with(command: Command, part: fn(Command) -> Command) -> Command {
    let about = command.get_about().cloned();
    let command = part(command).long_about(Resettable::Reset);
    match about {
        Some(about) => command.about(about),
        None => command.about(Resettable::Reset),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_the_api_is_a_noun() {
        for (kind, collection) in kind::COLLECTIONS {
            let noun = noun(kind).unwrap_or_else(|| panic!("{kind}"));
            assert_eq!(noun.collection, collection);
            assert!(
                noun.can.contains(&Can::Pages) && noun.can.contains(&Can::Get),
                "{kind} can be listed and shown"
            );
        }
    }
}
