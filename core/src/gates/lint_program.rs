//! The linter for the programs of a gate. A tool is a program of the gate's parser, or a program of
//! the image, and its arguments name no other program and no foreign file.

use super::catalogue::Parser;
use super::gate::Gate;
use super::programs::{ENVIRONMENT, Form, Launcher, PROGRAMS_FOLDER, Program, Takes};

/// Longest file name of a program or a file, in bytes.
const NAME_MAX: usize = 100;

/// Returns every reason against the programs of a gate, with the arguments and variables; empty
/// for allowed programs.
pub fn lint_program(gate: &Gate) -> Vec<String> {
    // Another rule refuses an unknown parser.
    let Some(parser) = Parser::find(&gate.parser) else {
        return Vec::new();
    };
    let own = check_call(&gate.argv, parser, gate).err();
    let peer = gate.peer.as_ref();
    let peer = peer.and_then(|peer| check_call(&peer.argv, parser, gate).err());
    own.into_iter()
        .chain(peer.map(|why| format!("peer: {why}")))
        .chain(lint_environment(gate))
        .collect()
}

/// Checks a call: a program of the image, a launcher, or a program of the parser.
fn check_call(argv: &[String], parser: &Parser, gate: &Gate) -> Result<(), String> {
    let Some((program, arguments)) = argv.split_first() else {
        return Ok(());
    };
    if let Some(name) = name_in(PROGRAMS_FOLDER, program) {
        return match is_plain(name) {
            true => Ok(()),
            false => Err(format!(
                "{program:?} is no program of the image: write {PROGRAMS_FOLDER}/NAME, without a folder between"
            )),
        };
    }
    match Launcher::find(program).filter(|known| parser.launchers.contains(&known.name)) {
        Some(launcher) => match find_started(launcher, arguments)? {
            [started, arguments @ ..] => check_program(started, arguments, parser, gate),
            [] => Err(format!("{program} starts no program")),
        },
        None => check_program(program, arguments, parser, gate),
    }
}

/// Returns the program and the arguments behind the options of a launcher.
fn find_started<'a>(launcher: &Launcher, arguments: &'a [String]) -> Result<&'a [String], String> {
    let mut rest = arguments;
    while let [option, after @ ..] = rest {
        if !option.starts_with('-') {
            break;
        }
        rest = if launcher.flags.contains(&option.as_str()) {
            after
        } else if launcher.values.contains(&option.as_str())
            && let [value, after @ ..] = after
            && is_word(value)
        {
            after
        } else {
            return Err(refuse_option(launcher.name, option));
        };
    }
    Ok(rest)
}

fn check_program(
    program: &str,
    arguments: &[String],
    parser: &Parser,
    gate: &Gate,
) -> Result<(), String> {
    let known = Program::find(program).filter(|known| parser.programs.contains(&known.name));
    let Some(known) = known else {
        return Err(format!(
            "{program:?} is no program of parser {}: write {} by the bare name, or {PROGRAMS_FOLDER}/NAME for a program of the image",
            parser.name,
            parser.programs.join(" or ")
        ));
    };
    let Some(form) = known.forms.iter().find(|form| form.begins(arguments)) else {
        let forms = known.forms.iter().map(|form| form.words.join(" "));
        let forms: Vec<String> = forms.map(|words| format!("`{program} {words}`")).collect();
        return Err(format!(
            "{program} is allowed as {} alone",
            forms.join(" or ")
        ));
    };
    check_arguments(program, form, &arguments[form.words.len()..])?;
    let mut missing = form
        .effects
        .iter()
        .filter(|effect| !gate.effects.contains(effect));
    match missing.next() {
        Some(effect) => Err(format!("{program} needs the effect {effect}")),
        None => Ok(()),
    }
}

/// Checks the arguments behind the words of a form.
fn check_arguments(program: &str, form: &Form, arguments: &[String]) -> Result<(), String> {
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        let (option, glued) = match argument.split_once('=') {
            Some((option, value)) if option.starts_with("--") => (option, Some(value)),
            Some(_) | None => (argument.as_str(), None),
        };
        if !argument.starts_with('-') {
            check_value(program, "", form.operands, argument)?;
        } else if glued.is_some() || !form.flags.contains(&option) {
            let takes = form.takes(option);
            let takes = takes.ok_or_else(|| refuse_option(program, option))?;
            let value = match glued {
                Some(value) => Some(value),
                None => rest.next().map(String::as_str),
            };
            let value = value.ok_or_else(|| format!("{program} {option} needs a value"))?;
            check_value(program, option, takes, value)?;
        }
    }
    Ok(())
}

/// Checks the value of an option, or an operand for an empty option.
fn check_value(program: &str, option: &str, takes: Takes, value: &str) -> Result<(), String> {
    let allowed = match takes {
        Takes::Nothing => false,
        Takes::Word => is_word(value),
        Takes::Scratch => value == "${scratch}" || is_file_in("${scratch}", value),
        Takes::Data => is_file_in("${scratch}", value) || is_own_file(value),
        Takes::Parameters => value.split(';').all(is_parameter),
        Takes::Path => value == "${each}" || is_path(value),
        Takes::Device => value == "${each}" || (value.starts_with("/dev/") && is_path(value)),
        Takes::OneOf(words) => words.contains(&value),
    };
    if allowed {
        return Ok(());
    }
    let wanted = match takes {
        Takes::Nothing => "is allowed for a program of the image alone".to_owned(),
        Takes::Word => "must be a number or a name, without a path".to_owned(),
        Takes::Scratch => "must be ${scratch}/NAME".to_owned(),
        Takes::Data => "must be ${scratch}/NAME or ${each}/.muster-NAME".to_owned(),
        Takes::Parameters => "must be TEST.NAME=VALUE, not of a test by another program".to_owned(),
        Takes::Path => "must be an absolute path".to_owned(),
        Takes::Device => "must be ${each} or a device below /dev".to_owned(),
        Takes::OneOf(words) => format!("must be one of {}", words.join(", ")),
    };
    let separator = if option.is_empty() { "" } else { " " };
    Err(format!("{program}: {option}{separator}{value:?} {wanted}"))
}

fn refuse_option(program: &str, option: &str) -> String {
    format!(
        "{program} {option} is not among the allowed arguments: leave the option out, or ship a program in {PROGRAMS_FOLDER}"
    )
}

fn lint_environment(gate: &Gate) -> Vec<String> {
    let refused = |(name, value): (&String, &String)| {
        if !ENVIRONMENT.contains(&name.as_str()) {
            let why = "may name a program, a library or a file";
            let allowed = ENVIRONMENT.join(", ");
            return Some(format!(
                "variable {name} of env {why}: allowed are {allowed}"
            ));
        }
        let is_plain = value.chars().all(|c| !c.is_control() && c != '/');
        (!is_plain).then(|| format!("variable {name} of env must have no path"))
    };
    gate.env.iter().filter_map(refused).collect()
}

/// Returns the part behind a folder and a slash.
fn name_in<'a>(folder: &str, path: &'a str) -> Option<&'a str> {
    path.strip_prefix(folder)?.strip_prefix('/')
}

fn is_file_in(folder: &str, path: &str) -> bool {
    name_in(folder, path).is_some_and(|name| is_plain(&name.replace("${hostname}", "n")))
}

/// Returns whether a path is a file of Muster on a mount. Another name may be a file of a user.
fn is_own_file(path: &str) -> bool {
    path.starts_with("${each}/.muster-") && is_file_in("${each}", path)
}

/// Returns whether a text is a parameter of a test of DCGM. The tests `eud` and `cpu_eud` hand
/// parameters to another program, and `logfile` names a file.
fn is_parameter(text: &str) -> bool {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    let parts = text
        .split_once('=')
        .map(|(name, value)| (name.split_once('.'), value));
    matches!(parts, Some((Some((test, name)), value))
        if test.chars().chain(name.chars()).all(plain)
            && !test.contains("eud") && !name.contains("file") && is_word(value))
}

/// Returns whether a text is the name of a file without a folder.
fn is_plain(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    (1..=NAME_MAX).contains(&name.len()) && name.chars().all(plain) && name != "." && name != ".."
}

/// Returns whether a text is neither a path nor an option. The variables of scratch and disk stand
/// for paths. A lone colon begins another program of `mpirun`, and `mpirun` hands each host of a
/// list to `ssh`.
fn is_word(text: &str) -> bool {
    let refused = ['/', '\'', '"', '`', '\\', '|', ';', '&', '<', '>'];
    !matches!(text, "" | ":")
        && text.split(',').all(|part| !part.starts_with('-'))
        && !text.contains("${scratch}")
        && !text.contains("${each}")
        && text
            .chars()
            .all(|c| !c.is_control() && !refused.contains(&c))
}

fn is_path(text: &str) -> bool {
    text.starts_with('/')
        && text.split('/').all(|part| part != "..")
        && text.chars().all(|c| !c.is_control() && c != '$')
}
