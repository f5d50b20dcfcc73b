//! The reference of the command line, generated from the grammar: docs/cli.md is for people, and a
//! test compares every help text with the
//! page. `UPDATE_CLI=1 cargo nextest run -p muster reference` writes the page.
#![cfg(test)]

use clap::{Arg, Command};

use crate::client::connection::PRECEDENCE;
use crate::client::exit;

const HEAD: &str = "\
# The command line

Generated from the program's grammar by `UPDATE_CLI=1 cargo nextest run -p muster reference`; a test compares.

`muster NOUN VERB`. The nouns are the kinds of the API; plural and dashes are accepted, as in `muster nodes list` and `muster hardware-profile list`.
`list` prints all objects, over several pages, unless `--limit` is set. `--filter`, `--sort` and `--fields` are parameters of the API (docs/api.md).
`-o json` prints a list as an array, and an object as an object. Irreversible actions ask for confirmation on a terminal; `-y` skips the question.
`muster completion bash|zsh|fish` prints a shell's completions: `source <(muster completion bash)`. The completions ask the server for names, for at
most a second.
";

fn page(command: &mut Command) -> String {
    command.build();
    let mut page = String::from(HEAD);
    page.push_str(&format!("\n## The server and the token\n\n{PRECEDENCE}\n"));
    page.push_str(&format!("\n## Exit codes\n\n```\n{}\n```\n", exit::table()));
    page.push_str("\n## Options of every command\n\n");
    arguments(&mut page, command, |argument| argument.is_global_set());
    for noun in command.get_subcommands().filter(|noun| listed(noun)) {
        page.push_str(&format!("\n## muster {}\n\n", noun.get_name()));
        describe(&mut page, noun);
        for verb in noun.get_subcommands().filter(|verb| listed(verb)) {
            page.push_str(&format!(
                "\n### muster {} {}\n\n",
                noun.get_name(),
                verb.get_name()
            ));
            describe(&mut page, verb);
        }
    }
    page
}

fn listed(command: &Command) -> bool {
    !command.is_hide_set() && command.get_name() != "help"
}

fn describe(page: &mut String, command: &Command) {
    let about = command
        .get_about()
        .map(ToString::to_string)
        .unwrap_or_default();
    page.push_str(&format!("{}.\n", about.trim_end_matches('.')));
    let aliases: Vec<String> = command
        .get_visible_aliases()
        .map(|alias| format!("`{alias}`"))
        .collect();
    if !aliases.is_empty() {
        page.push_str(&format!("Also called {}.\n", aliases.join(", ")));
    }
    let usage = command.clone().render_usage().to_string();
    let usage = usage
        .trim_start_matches("Usage: ")
        .lines()
        .map(str::trim)
        .collect::<Vec<_>>()
        .join("\n");
    page.push_str(&format!("\n```\n{usage}\n```\n"));
    arguments(page, command, |argument| !argument.is_global_set());
}

fn arguments(page: &mut String, command: &Command, wanted: impl Fn(&Arg) -> bool) {
    let own = command
        .get_arguments()
        .filter(|argument| wanted(argument) && !argument.is_hide_set());
    for argument in own.filter(|argument| !matches!(argument.get_id().as_str(), "help" | "version"))
    {
        let help = argument
            .get_help()
            .map(ToString::to_string)
            .unwrap_or_default()
            .replace('\n', " ");
        let mut said = vec![if help.is_empty() || help.ends_with(['.', '?']) {
            help
        } else {
            format!("{help}.")
        }];
        let defaults: Vec<_> = argument
            .get_default_values()
            .iter()
            .map(|value| value.to_string_lossy())
            .collect();
        if !defaults.is_empty() && argument.get_action().takes_values() {
            said.push(format!("Default: `{}`.", defaults.join(" ")));
        }
        let values: Vec<String> = argument
            .get_possible_values()
            .iter()
            .map(|value| format!("`{}`", value.get_name()))
            .collect();
        if !values.is_empty() && argument.get_action().takes_values() {
            said.push(format!("One of {}.", values.join(", ")));
        }
        if let Some(variable) = argument.get_env() {
            said.push(format!("Also `{}`.", variable.to_string_lossy()));
        }
        said.retain(|part| !part.is_empty());
        let text = said.join(" ");
        page.push_str(&format!(
            "* `{argument}`{}{text}\n",
            if text.is_empty() { "" } else { ": " }
        ));
    }
}

#[test]
fn the_reference_is_what_the_program_says() {
    let page = page(&mut crate::command());
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/cli.md");
    if std::env::var_os("UPDATE_CLI").is_some() {
        std::fs::write(&path, &page).unwrap();
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        written == page,
        "docs/cli.md is not what the program says: UPDATE_CLI=1 writes it"
    );
}

#[test]
fn the_grammar_holds_together() {
    crate::command().debug_assert();
    let help = crate::command().render_help().to_string();
    for noun in crate::command()
        .get_subcommands()
        .filter(|noun| listed(noun))
    {
        assert!(
            help.contains(noun.get_name()),
            "--help does not name {}",
            noun.get_name()
        );
    }
}

/// All texts with commands for people.
fn told() -> Vec<(std::path::PathBuf, String)> {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut folders: Vec<_> = ["templates", "server/src", "docs"]
        .map(|folder| root.join(folder))
        .into();
    let mut texts = vec![(
        root.join("README.md"),
        std::fs::read_to_string(root.join("README.md")).unwrap(),
    )];
    while let Some(folder) = folders.pop() {
        for path in std::fs::read_dir(folder)
            .unwrap()
            .flatten()
            .map(|entry| entry.path())
        {
            match path.extension().and_then(std::ffi::OsStr::to_str) {
                _ if path.is_dir() => folders.push(path),
                Some("html" | "rs" | "md") => {
                    texts.push((path.clone(), std::fs::read_to_string(&path).unwrap()))
                }
                _ => {}
            }
        }
    }
    texts
}

#[test]
fn whatever_people_are_told_to_type_is_a_command() {
    let grammar = crate::command();
    let mut seen = 0;
    for (path, text) in told() {
        // A page's text to copy is a separate text; other quoted texts can have any content.
        let offers = path.components().any(|part| part.as_os_str() == "ui");
        let opened = ["`muster ", "<code>muster ", "\"muster "];
        for opened in opened
            .into_iter()
            .filter(|opened| offers || !opened.starts_with('"'))
        {
            for typed in text.split(opened).skip(1) {
                let typed = typed
                    .split(['`', '<', '"', '\n'])
                    .next()
                    .unwrap_or_default();
                let mut words = typed.split_whitespace().take_while(|word| {
                    word.chars()
                        .all(|c| c.is_ascii_lowercase() || matches!(c, '-' | '_'))
                });
                let Some(noun) = words.next() else { continue };
                // Hashed texts of the history's seals begin with the same word: `muster event 1`,
                // `muster seal 1`.
                if path.ends_with("audit.md") && typed.ends_with(" 1") {
                    continue;
                }
                let found = grammar.find_subcommand(noun);
                assert!(
                    found.is_some(),
                    "{}: muster {typed}: there is no {noun}",
                    path.display()
                );
                seen += 1;
                let Some(found) = found.filter(|found| found.is_subcommand_required_set()) else {
                    continue;
                };
                let Some(verb) = words.next() else { continue };
                assert!(
                    found.find_subcommand(verb).is_some(),
                    "{}: muster {typed}: no verb {verb}",
                    path.display()
                );
            }
        }
    }
    assert!(seen > 30, "only {seen} commands were found");
}
