//! docs/parsers.md is generated from the parser catalogue. `UPDATE_DOCS=1 cargo nextest run -p
//! muster-core document` writes the file again.

use std::fmt::Write as _;
use std::path::Path;

use super::{Metric, Parser};

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
            "\n## {}\n\n{}{mark}\n\n| metric | unit | one for each |\n|---|---|---|",
            parser.name, parser.reads
        );
        for Metric { name, unit, per } in parser.metrics {
            let per = if per.is_empty() { "node" } else { per };
            let _ = writeln!(text, "| `{name}` | {unit} | {per} |");
        }
    }
    text
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
