//! `muster completion`, and the answers to its scripts for each press of Tab. The grammar provides
//! words, the server provides names within a second. Errors
//! are never printed.

use std::time::Duration;

use clap::{Arg, Command};
use clap_complete::Shell;
use muster_api::kind;
use muster_core::values::Name;

use super::config::Config;
use super::connection::Connection;
use super::kinds;

/// The hidden subcommand called by the scripts.
pub(crate) const VERB: &str = "__complete";

/// Time limit for names.
const DEADLINE: Duration = Duration::from_secs(1);
/// The largest number of suggestions.
const MOST: &str = "200";

const BASH: &str = r#"_muster() {
    local line
    COMPREPLY=()
    while IFS= read -r line; do
        COMPREPLY+=("$line")
    done < <("${COMP_WORDS[0]}" __complete -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
}
complete -o bashdefault -o default -F _muster muster
"#;

const ZSH: &str = r#"#compdef muster
_muster() {
    local -a found
    found=("${(@f)$("${words[1]}" __complete -- "${(@)words[2,CURRENT]}" 2>/dev/null)}")
    found=("${(@)found:#}")
    if (( ${#found} )); then compadd -- "${found[@]}"; else _files; fi
}
if [ "$funcstack[1]" = "_muster" ]; then _muster "$@"; else compdef _muster muster; fi
"#;

const FISH: &str = r#"complete -c muster -a '(muster __complete -- (commandline -opc)[2..] (commandline -ct) 2>/dev/null)'
"#;

/// Prints the script of a shell. Scripts of supported shells call the program; other scripts
/// contain only the grammar.
pub(crate) fn print(shell: Shell, command: &mut Command) {
    match shell {
        Shell::Bash => print_text!("{BASH}"),
        Shell::Zsh => print_text!("{ZSH}"),
        Shell::Fish => print_text!("{FISH}"),
        other => {
            let mut script = Vec::new();
            clap_complete::generate(other, command, "muster", &mut script);
            print_text!("{}", String::from_utf8_lossy(&script));
        }
    }
}

/// The hidden subcommand.
pub(super) fn command() -> Command {
    let words = Arg::new("words")
        .num_args(0..)
        .trailing_var_arg(true)
        .allow_hyphen_values(true);
    Command::new(VERB)
        .hide(true)
        .about("What a command line can go on with, for the scripts of shells")
        .arg(words)
}

/// Prints the suggestions for the last of these words.
pub(crate) async fn run(mut grammar: Command, words: &[String]) {
    grammar.build();
    let wanted = wanted(&grammar, words);
    let found = match wanted.what {
        What::Words(words) => words,
        What::Contexts => Config::load()
            .map(|config| config.contexts.into_keys().collect())
            .unwrap_or_default(),
        What::Names(collection) => {
            let connection = Connection::typed(words);
            let asked = names(&connection, collection, wanted.typed);
            tokio::time::timeout(DEADLINE, asked)
                .await
                .ok()
                .flatten()
                .unwrap_or_default()
        }
    };
    for word in found.iter().filter(|word| word.starts_with(wanted.typed)) {
        print_line!("{}{word}", wanted.before);
    }
}

/// Returns names of a kind with this prefix. Unusual names are not passed to a shell.
async fn names(connection: &Connection, collection: &str, typed: &str) -> Option<Vec<String>> {
    let plain = |text: &str| {
        text.bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
    };
    if !plain(typed) {
        return None;
    }
    let client = connection.client().ok()?;
    let filter = format!("name~\"{typed}*\"");
    let page = client
        .get_value(
            &[collection],
            &[("limit", MOST), ("fields", "name"), ("filter", &filter)],
        )
        .await
        .ok()?;
    let names = page["items"]
        .as_array()?
        .iter()
        .filter_map(|item| item["name"].as_str());
    Some(
        names
            .filter(|name| name.parse::<Name>().is_ok())
            .map(str::to_owned)
            .collect(),
    )
}

/// The suggestions possible at a place of the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
enum What {
    Words(Vec<String>),
    /// Objects of a kind, by the word in its path.
    Names(&'static str),
    /// Contexts of the configuration file.
    Contexts,
}

#[derive(Debug, PartialEq, Eq)]
struct Wanted<'words> {
    what: What,
    /// The typed part of the word, and the part expected back by the shell.
    typed: &'words str,
    before: &'words str,
}

/// The place on the command line after the complete words.
struct Position<'grammar> {
    command: &'grammar Command,
    /// The names of the subcommands so far.
    path: Vec<&'grammar str>,
    /// The option waiting for a value.
    pending: Option<&'grammar Arg>,
    /// The number of positional arguments so far.
    at: usize,
    /// Whether `--` ended the options.
    bare: bool,
}

fn find_position<'grammar>(grammar: &'grammar Command, before: &[String]) -> Position<'grammar> {
    let (mut command, mut path, mut pending, mut at, mut bare) =
        (grammar, Vec::new(), None, 0, false);
    // Some shells split `--pool=gpu` into `--pool`, `=` and `gpu`.
    for word in before
        .iter()
        .map(String::as_str)
        .filter(|word| *word != "=")
    {
        if pending.take().is_some() {
            continue;
        }
        match word {
            "--" => bare = true,
            option if option.starts_with('-') && option.len() > 1 && !bare => {
                pending = option_of(command, option).filter(|_| !option.contains('='));
            }
            word => match command.find_subcommand(word).filter(|_| at == 0) {
                Some(found) => {
                    command = found;
                    path.push(found.get_name());
                }
                None => at += 1,
            },
        }
    }
    Position {
        command,
        path,
        pending,
        at,
        bare,
    }
}

fn wanted<'words>(grammar: &Command, words: &'words [String]) -> Wanted<'words> {
    let (last, before) = words
        .split_last()
        .map_or(("", &[][..]), |(last, before)| (last.as_str(), before));
    let Position {
        command,
        path,
        pending,
        at,
        bare,
    } = find_position(grammar, before);
    let typed = if last == "=" { "" } else { last };
    let whole = |what| Wanted {
        what,
        typed,
        before: "",
    };
    if let Some(option) = pending {
        return whole(values(option, &path));
    }
    match typed.split_once('=') {
        Some((option, value)) if option.starts_with("--") => {
            let what = option_of(command, option)
                .map_or(What::Words(Vec::new()), |option| values(option, &path));
            return Wanted {
                what,
                typed: value,
                before: &typed[..option.len() + 1],
            };
        }
        _ => {}
    }
    if typed.starts_with('-') && !bare {
        let options = command
            .get_arguments()
            .filter(|option| !option.is_hide_set());
        return whole(What::Words(
            options
                .filter_map(Arg::get_long)
                .map(|long| format!("--{long}"))
                .collect(),
        ));
    }
    let verbs = command
        .get_subcommands()
        .filter(|verb| !verb.is_hide_set() && at == 0);
    let verbs: Vec<String> = verbs.map(|verb| verb.get_name().to_owned()).collect();
    if !verbs.is_empty() {
        return whole(What::Words(verbs));
    }
    let positional = command
        .get_positionals()
        .nth(at)
        .or_else(|| command.get_positionals().last().filter(repeats));
    whole(positional.map_or(What::Words(Vec::new()), |positional| {
        values(positional, &path)
    }))
}

fn repeats(argument: &&Arg) -> bool {
    argument
        .get_num_args()
        .is_some_and(|many| many.max_values() > 1)
}

/// Returns the option named by a word, if a value follows.
fn option_of<'grammar>(command: &'grammar Command, word: &str) -> Option<&'grammar Arg> {
    let name = word.split('=').next().unwrap_or_default();
    let named = |option: &&Arg| match name.strip_prefix("--") {
        Some(long) => option.get_long() == Some(long),
        None => option
            .get_short()
            .is_some_and(|short| name.ends_with(short)),
    };
    command
        .get_arguments()
        .find(named)
        .filter(|option| option.get_action().takes_values())
}

/// Returns the suggestions for an argument: its own values, or the kind with the argument's name.
fn values(argument: &Arg, path: &[&str]) -> What {
    let listed = argument.get_possible_values();
    if !listed.is_empty() {
        return What::Words(
            listed
                .iter()
                .map(|value| value.get_name().to_owned())
                .collect(),
        );
    }
    let of = |word: &str| {
        kind::COLLECTIONS
            .iter()
            .find(|(known, _)| *known == word)
            .map(|(_, collection)| *collection)
    };
    let noun = path.first().copied().unwrap_or_default();
    let found = match (
        argument.get_id().as_str(),
        path.last().copied().unwrap_or_default(),
    ) {
        ("context", _) => return What::Contexts,
        ("name", _) if noun == "context" => return What::Contexts,
        // A new name, so existing names are no suggestion.
        ("name" | "names", "create" | "rename") => None,
        ("name" | "names", _) => kinds::noun(noun).map(|noun| noun.collection),
        (word, _) => of(word).or_else(|| of(word.trim_end_matches('s'))),
    };
    found.map_or(What::Words(Vec::new()), What::Names)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(line: &str) -> (What, String, String) {
        let mut grammar = crate::command();
        grammar.build();
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        let Wanted {
            what,
            typed,
            before,
        } = wanted(&grammar, &words);
        (what, typed.to_owned(), before.to_owned())
    }

    fn words(line: &str) -> Vec<String> {
        match asked(line).0 {
            What::Words(words) => words,
            other => panic!("{line}: {other:?}"),
        }
    }

    #[test]
    fn the_grammar_goes_on_with_its_own_words() {
        assert!(
            words("").iter().any(|word| word == "node")
                && !words("").iter().any(|word| word == VERB)
        );
        assert!(
            words("no").contains(&"node".to_owned()),
            "what does not begin so is left out afterwards"
        );
        assert!(
            words("rack ").contains(&"describe".to_owned())
                && words("hardware-profile ").contains(&"list".to_owned())
        );
        assert!(
            words("node wipe --").contains(&"--plan".to_owned())
                && words("-").contains(&"--context".to_owned())
        );
        for line in [
            "rack list -o ",
            "-o ",
            "rack list --output=",
            "rack list --output = ",
        ] {
            assert!(words(line).contains(&"yaml".to_owned()), "{line}");
        }
        assert_eq!(
            words("node rename gpu-1 "),
            [""; 0],
            "a new name has no completions"
        );
        assert_eq!(words("apply -f "), [""; 0]);
    }

    #[test]
    fn names_are_asked_for_where_a_kind_is_meant() {
        let names = |collection| What::Names(collection);
        for (line, collection) in [
            ("node why ", "nodes"),
            ("node get gpu-1 ", "nodes"),
            ("node wipe gpu-1 gpu-2 ", "nodes"),
            ("racks delete r1 ", "racks"),
            ("hardware-profile get ", "hardware_profiles"),
            ("claim release ", "claims"),
            ("claim replace ", "claims"),
            ("claim hold c1 ", "claims"),
            ("claim replace c1 --node ", "nodes"),
            ("claim create --pool ", "pools"),
            ("claim create --pool gpu --node ", "nodes"),
            ("node move gpu-1 --rack ", "racks"),
            ("agent list ", "sites"),
            ("-o json --server http://x rack get ", "racks"),
        ] {
            assert_eq!(asked(line).0, names(collection), "{line}");
        }
        assert_eq!(
            asked("claim create --pool=g"),
            (names("pools"), "g".into(), "--pool=".into())
        );
        assert_eq!(
            asked("claim create --pool = g"),
            (names("pools"), "g".into(), String::new())
        );
        assert_eq!(
            asked("claim create --pool ="),
            (names("pools"), String::new(), String::new())
        );
        assert_eq!(asked("--context ").0, What::Contexts);
        assert_eq!(asked("context use ").0, What::Contexts);
    }
}
