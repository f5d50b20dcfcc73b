//! docs/parsers.md is generated from the parser catalogue. `UPDATE_DOCS=1 cargo nextest run -p
//! muster-core document` writes the file again.

use std::fmt::Write as _;
use std::path::Path;

use super::{Metric, Parser};
use crate::gates::programs::{ENVIRONMENT, Form, LAUNCHERS, PROGRAMS_FOLDER, Program, Takes};

fn quote(names: &[&str]) -> String {
    let quoted: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
    quoted.join(", ")
}

/// The words, options and operands of a form.
fn describe(form: &Form) -> String {
    let words = form.words.join(" ");
    let words: Vec<&str> = Some(words.as_str())
        .filter(|words| !words.is_empty())
        .into_iter()
        .collect();
    let mut parts = vec![quote(&words), quote(form.flags)];
    for (names, value) in [
        (form.values, "WORD"),
        (form.files, "${scratch}/NAME"),
        (form.data, "${scratch}/NAME"),
        (form.reads, "PATH"),
        (form.parameters, "TEST.NAME=VALUE"),
    ] {
        let given: Vec<String> = names.iter().map(|name| format!("{name} {value}")).collect();
        parts.push(quote(&given.iter().map(String::as_str).collect::<Vec<_>>()));
    }
    for choice in form.choices {
        let values = choice.values.join(" or ");
        parts.push(format!("`{}` with {values}", choice.option));
    }
    parts.push(match form.operands {
        Takes::Nothing => String::new(),
        Takes::Word => "`WORD`".into(),
        Takes::Parameters => "`TEST.NAME=VALUE`".into(),
        Takes::Scratch | Takes::Data => "`${scratch}/NAME`".into(),
        Takes::Path => "`PATH`".into(),
        Takes::Device => "`${each}` or a device below `/dev`".into(),
        Takes::OneOf(words) => words.join(" or "),
    });
    parts.retain(|part| !part.is_empty());
    match parts.is_empty() {
        true => "no arguments".into(),
        false => parts.join(", "),
    }
}

/// The table of the programs, with the allowed arguments and the effects.
fn write_programs(text: &mut String) {
    let _ = write!(
        text,
        "\n## Programs\n\n\
         A gate starts a program of its parser by the bare name, with the arguments of this table and no others, or a program of the image:\n\
         `{PROGRAMS_FOLDER}/NAME` with any arguments. `WORD` is a number, a name or a list without `/`; an option and its value are two arguments, or one\n\
         argument with `=` for an option with two dashes. `fio` also writes to `${{each}}/.muster-NAME` on a mount. The gate must name the effects.\n\n\
         | program | arguments | effects |\n|---|---|---|\n"
    );
    // Programs with the same rule, such as those of nccl-tests, share a row.
    let mut rows: Vec<(String, Vec<&str>)> = Vec::new();
    for program in Program::all() {
        for form in program.forms {
            let effects: Vec<&str> = form.effects.iter().map(|effect| effect.as_str()).collect();
            let rule = format!("{} | {}", describe(form), quote(&effects));
            match rows.iter_mut().find(|(known, _)| *known == rule) {
                Some((_, names)) => names.push(program.name),
                None => rows.push((rule, vec![program.name])),
            }
        }
    }
    for (rule, names) in rows {
        let _ = writeln!(text, "| {} | {rule} |", quote(&names));
    }
    for launcher in LAUNCHERS {
        let options = [launcher.flags, launcher.values].concat();
        let _ = writeln!(
            text,
            "\n`{}` may start a program of nccl-tests. Before the program stand only {}.",
            launcher.name,
            quote(&options)
        );
    }
    let _ = writeln!(
        text,
        "\n`env` of a gate may name only {}.",
        quote(ENVIRONMENT)
    );
}

/// The table of the sandboxes: parsers of a tool with the network and the disks of the tool.
fn write_sandboxes(text: &mut String) {
    text.push_str(
        "\n## Sandbox\n\n\
         The network and the disks of a tool by its parser, described in [gates.md](gates.md#sandbox-of-a-gates-tool). The effect `network_load` and a\n\
         pair give the network `host`; the effect `writes_disk` gives the disks `write`.\n\n\
         | parsers | network | disks |\n|---|---|---|\n",
    );
    let mut rows: Vec<(String, Vec<&str>)> = Vec::new();
    for parser in Parser::all().filter(|parser| !parser.builtin) {
        let reach = format!("{} | {}", parser.network, parser.disks);
        match rows.iter_mut().find(|(known, _)| *known == reach) {
            Some((_, names)) => names.push(parser.name),
            None => rows.push((reach, vec![parser.name])),
        }
    }
    for (reach, names) in rows {
        let _ = writeln!(text, "| {} | {reach} |", quote(&names));
    }
}

fn document() -> String {
    let mut text = String::from(
        "# Parsers\n\n\
         The metrics a gate can use, each with its only valid unit. Generated from `core/src/gates/catalogue`. After a change there,\n\
         `UPDATE_DOCS=1 cargo nextest run -p muster-core document` writes the page again.\n\n\
         A parser accepts only complete, known output. An unknown version, another JSON or XML root, a malformed number, or fewer GPUs than announced is an\n\
         error, and an error is never a pass. A value that the card or the tool version does not report (`N/A`) is missing, so its gate has no answer. Parsers\n\
         marked *experimental* were written from documentation and have not read a recording of the real tool; a gate with such a parser cannot be required.\n\
         `muster record DIR` collects and scrubs recordings on a machine, from tools that only read. `muster record DIR -- gpu_burn -tc 60` also runs a tool that\n\
         loads the machine, for an hour unless `--timeout` says otherwise, and keeps stdout, stderr, exit status and arguments.\n\
         `muster gate parse PARSER FILE` shows the values read by a parser from any file.\n",
    );
    text.push_str("\n| parser | reads | |\n|---|---|---|\n");
    for parser in Parser::all() {
        let mark = if parser.experimental {
            "experimental"
        } else {
            ""
        };
        let measures = if parser.builtin {
            "measured by muster-node: "
        } else {
            ""
        };
        let _ = writeln!(
            text,
            "| [{0}](#{0}) | {measures}{1} | {mark} |",
            parser.name, parser.reads
        );
    }
    for parser in Parser::all() {
        let mark = if parser.experimental {
            ", experimental"
        } else {
            ""
        };
        let _ = writeln!(
            text,
            "\n## {}\n\n{}{mark}\n{}\n| metric | unit | one for each |\n|---|---|---|",
            parser.name,
            parser.reads,
            describe_programs(parser)
        );
        for Metric { name, unit, per } in parser.metrics {
            let per = if per.is_empty() { "node" } else { per };
            let _ = writeln!(text, "| `{name}` | {unit} | {per} |");
        }
    }
    write_programs(&mut text);
    write_sandboxes(&mut text);
    text
}

/// The line with the programs of a parser; empty for a measurement by muster-node.
fn describe_programs(parser: &Parser) -> String {
    match parser.programs {
        [] => String::new(),
        programs => format!("\nPrograms: {}\n", quote(programs)),
    }
}

#[test]
fn every_parser_of_a_tool_names_known_programs() {
    for parser in Parser::all() {
        assert_eq!(
            parser.builtin,
            parser.programs.is_empty(),
            "{}",
            parser.name
        );
        for name in parser.programs {
            assert!(Program::find(name).is_some(), "{}: {name}", parser.name);
        }
        for name in parser.launchers {
            let is_known = LAUNCHERS.iter().any(|launcher| launcher.name == *name);
            assert!(is_known, "{}: {name}", parser.name);
        }
    }
    // A program without a parser is never started.
    for program in Program::all() {
        let is_read = Parser::all().any(|parser| parser.programs.contains(&program.name));
        assert!(is_read, "{}", program.name);
    }
}

#[test]
fn document_is_the_catalogue() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/parsers.md");
    let document = document();
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, &document).expect("a writable file");
    }
    let stored = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        stored == document,
        "docs/parsers.md differs from the catalogue: set UPDATE_DOCS=1 and run this test again"
    );
}

#[test]
fn names_are_told_apart_and_units_are_one_for_each_metric() {
    let mut parsers: Vec<&str> = Parser::all().map(|parser| parser.name).collect();
    parsers.sort_unstable();
    assert!(
        parsers.windows(2).all(|pair| pair[0] != pair[1]),
        "two parsers of one name"
    );
    let metrics: Vec<&Metric> = Parser::all().flat_map(|parser| parser.metrics).collect();
    for metric in &metrics {
        let other = metrics
            .iter()
            .find(|other| other.name == metric.name && other.unit != metric.unit);
        assert!(
            other.is_none(),
            "{} is in {} and in {}",
            metric.name,
            metric.unit,
            other.map_or("", |other| other.unit)
        );
    }
    for parser in Parser::all() {
        let mut names: Vec<&str> = parser.metrics.iter().map(|metric| metric.name).collect();
        names.sort_unstable();
        assert!(
            names.windows(2).all(|pair| pair[0] != pair[1]),
            "{} gives one metric twice",
            parser.name
        );
    }
}
