//! Tables for people, JSON and YAML for programs. Values may come from an untrusted machine:
//! control characters are made visible and
//! never sent to the terminal.

use std::io::IsTerminal as _;

use clap::{Args, ValueEnum};
use comfy_table::presets::NOTHING;
use comfy_table::{Cell, Color, ContentArrangement, Table};
use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;

/// The output format.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct Output {
    /// Output format. A table is for people and may change
    #[arg(
        short,
        long,
        value_enum,
        default_value = "table",
        global = true,
        help_heading = "Output"
    )]
    output: Format,
    /// The same as `-o json`
    #[arg(long, global = true, help_heading = "Output")]
    json: bool,
    /// Print only the result and errors, without progress and notes
    #[arg(short, long, global = true, help_heading = "Output")]
    quiet: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// Aligned columns, cut to the terminal's width.
    Table,
    /// A table with additional columns.
    Wide,
    Json,
    Yaml,
    /// A name or id per line, for other commands.
    Name,
}

/// A column of a table: the place of the value, and its format.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Column {
    heading: &'static str,
    /// JSON pointers; the first present value counts: `/status/reason|/status/why`.
    pointer: &'static str,
    form: Form,
    wide: bool,
}

impl Column {
    pub(crate) const fn new(heading: &'static str, pointer: &'static str, form: Form) -> Self {
        Self {
            heading,
            pointer,
            form,
            wide: false,
        }
    }

    /// A column of `-o wide`.
    pub(crate) const fn wide(heading: &'static str, pointer: &'static str, form: Form) -> Self {
        Self {
            heading,
            pointer,
            form,
            wide: true,
        }
    }

    /// The same column in every table.
    pub(crate) const fn narrow(self) -> Self {
        Self {
            wide: false,
            ..self
        }
    }
}

/// The format of a value.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Form {
    Text,
    /// Coloured by meaning.
    State,
    Age,
    Day,
    Time,
    Watts,
    Seconds,
    Milliseconds,
    /// The first digits of a digest.
    Digest,
    /// The scope of a right.
    Scope,
    By(fn(&Value, Timestamp) -> String),
}

impl Output {
    /// Returns whether a person reads the output.
    pub(crate) fn is_table(self) -> bool {
        !self.json && matches!(self.output, Format::Table | Format::Wide)
    }

    /// Returns whether notes and progress are printed.
    pub(crate) fn is_quiet(self) -> bool {
        self.quiet
    }

    /// Returns whether all columns are printed.
    pub(crate) fn is_wide(self) -> bool {
        self.output == Format::Wide
    }

    /// Prints a note to stderr.
    pub(crate) fn note(self, line: &str) {
        if !self.quiet && self.is_table() {
            eprintln!("{}", clean(line));
        }
    }

    /// Prints a list.
    pub(crate) fn list(
        self,
        items: &[Value],
        columns: &[Column],
        now: Timestamp,
    ) -> anyhow::Result<()> {
        match self.document(&items)? {
            true => {}
            false if self.output == Format::Name => items
                .iter()
                .for_each(|item| print_line!("{}", clean(called(item)))),
            false => show(items, columns, self.is_wide(), now),
        }
        Ok(())
    }

    /// Prints typed items as a list.
    pub(crate) fn list_of<T: Serialize>(
        self,
        items: &[T],
        columns: &[Column],
        now: Timestamp,
    ) -> anyhow::Result<()> {
        let items = items
            .iter()
            .map(serde_json::to_value)
            .collect::<Result<Vec<_>, _>>()?;
        self.list(&items, columns, now)
    }

    /// Prints an object: a row for people, the complete object for programs.
    pub(crate) fn one(
        self,
        item: &Value,
        columns: &[Column],
        now: Timestamp,
    ) -> anyhow::Result<()> {
        match self.document(item)? {
            true => Ok(()),
            false => self.list(std::slice::from_ref(item), columns, now),
        }
    }

    /// Prints a document, or lines describing the document.
    pub(crate) fn print_lines<T: Serialize>(
        self,
        value: &T,
        lines: impl FnOnce() -> Vec<String>,
    ) -> anyhow::Result<()> {
        match self.document(value)? {
            true => {}
            false if self.output == Format::Name => {
                print_line!("{}", clean(called(&serde_json::to_value(value)?)))
            }
            false => lines()
                .iter()
                .for_each(|line| print_line!("{}", clean(line))),
        }
        Ok(())
    }

    /// Prints a document if a document format is requested.
    fn document<T: Serialize + ?Sized>(self, value: &T) -> anyhow::Result<bool> {
        match (self.json, self.output) {
            (true, _) | (_, Format::Json) => {
                print_line!("{}", serde_json::to_string_pretty(value)?)
            }
            (_, Format::Yaml) => print_text!("{}", serde_yaml_ng::to_string(value)?),
            (_, Format::Table | Format::Wide | Format::Name) => return Ok(false),
        }
        Ok(true)
    }
}

/// Returns the name accepted by other commands.
fn called(item: &Value) -> &str {
    ["name", "id", "seq", "serial"]
        .iter()
        .find_map(|member| item[*member].as_str())
        .unwrap_or_default()
}

/// Whether what is printed may be coloured: on a terminal, and unless told otherwise (<https://no-color.org>).
pub(crate) fn colours(terminal: bool) -> bool {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    terminal && set("NO_COLOR").is_none() && set("TERM").is_none_or(|term| term != "dumb")
}

fn show(items: &[Value], columns: &[Column], wide: bool, now: Timestamp) {
    let columns: Vec<&Column> = columns
        .iter()
        .filter(|column| wide || !column.wide)
        .collect();
    let terminal = std::io::stdout().is_terminal();
    let coloured = colours(terminal);
    let mut table = Table::new();
    table.load_style(NOTHING).set_truncation_indicator("…");
    // Cut to the terminal; complete in a pipe.
    let arrangement = if terminal && !wide {
        ContentArrangement::Dynamic
    } else {
        ContentArrangement::Disabled
    };
    table
        .set_content_arrangement(arrangement)
        .set_header(columns.iter().map(|column| column.heading));
    for item in items {
        let mut row = comfy_table::Row::from(
            columns
                .iter()
                .map(|column| cell(item, column, now, coloured)),
        );
        if terminal && !wide {
            row.max_height(1);
        }
        table.add_row(row);
    }
    table.column_iter_mut().for_each(|column| {
        column.set_padding((0, 2));
    });
    for line in table.lines() {
        print_line!("{}", line.trim_end());
    }
}

fn cell(item: &Value, column: &Column, now: Timestamp, coloured: bool) -> Cell {
    let text = clean(&read(item, column, now)).replace('\n', " ");
    let colour = match column.form {
        Form::State if coloured => colour(&text),
        _ => None,
    };
    match colour {
        Some(colour) => Cell::new(text).fg(colour),
        None => Cell::new(text),
    }
}

/// Green: as requested. Red: a person is needed. Yellow: in progress, or unreachable.
fn colour(state: &str) -> Option<Color> {
    match state {
        "in_service" | "succeeded" | "bound" | "pass" | "ok" => Some(Color::Green),
        "failed" | "quarantined" | "fail" | "error" => Some(Color::Red),
        "unknown" | "warn" | "draining" | "repairing" | "maintenance" => Some(Color::Yellow),
        _ => None,
    }
}

fn read(item: &Value, column: &Column, now: Timestamp) -> String {
    if let Form::By(read) = column.form {
        return read(item, now);
    }
    let found = column
        .pointer
        .split('|')
        .filter_map(|pointer| item.pointer(pointer))
        .find(|value| !value.is_null());
    let Some(value) = found else {
        return String::new();
    };
    let time = || {
        value
            .as_str()
            .and_then(|text| text.parse::<Timestamp>().ok())
    };
    match column.form {
        Form::Age => age(now, time()),
        Form::Day => time()
            .map(|at| at.strftime("%F").to_string())
            .unwrap_or_default(),
        Form::Time => time()
            .map(|at| at.strftime("%F %T").to_string())
            .unwrap_or_default(),
        Form::Watts => format!("{value} W"),
        Form::Seconds => format!("{value} s"),
        Form::Milliseconds => value
            .as_i64()
            .map(|ms| format!("{:+}.{:03} s", ms / 1000, (ms % 1000).abs()))
            .unwrap_or_default(),
        Form::Digest => text(value)
            .trim_start_matches("sha256:")
            .chars()
            .take(12)
            .collect(),
        Form::Scope => scope(value),
        Form::Text | Form::State | Form::By(_) => text(value),
    }
}

fn scope(value: &Value) -> String {
    let parts = value
        .as_object()
        .into_iter()
        .flatten()
        .filter(|(_, part)| !part.is_null());
    let parts = parts.filter(|(_, part)| part.as_object().is_none_or(|labels| !labels.is_empty()));
    let parts: Vec<String> = parts
        .map(|(name, part)| format!("{name}={}", text(part)))
        .collect();
    if parts.is_empty() {
        "everywhere".into()
    } else {
        parts.join(" ")
    }
}

/// Returns a value for a line: text unchanged, other values as JSON.
pub(crate) fn text(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// Returns text safe for a terminal.
pub(crate) fn clean(text: &str) -> String {
    text.chars()
        .map(|c| {
            if c.is_control() && c != '\n' {
                '\u{fffd}'
            } else {
                c
            }
        })
        .collect()
}

/// Returns an age in the largest useful unit.
pub(crate) fn age(now: Timestamp, then: Option<Timestamp>) -> String {
    let Some(then) = then else {
        return String::new();
    };
    let seconds = now.duration_since(then).as_secs();
    match seconds {
        ..0 => "now".into(),
        0..120 => format!("{seconds}s"),
        120..7200 => format!("{}m", seconds / 60),
        7200..172_800 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86_400),
    }
}

/// Returns milliseconds for people.
pub(crate) fn duration(milliseconds: i64) -> String {
    match milliseconds {
        ..1000 => format!("{milliseconds} ms"),
        1000..120_000 => format!("{}.{} s", milliseconds / 1000, milliseconds % 1000 / 100),
        _ => format!(
            "{} min {} s",
            milliseconds / 60_000,
            milliseconds % 60_000 / 1000
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_is_never_sent_what_a_node_wrote() {
        assert_eq!(clean("a\u{1b}[31mb\r\0"), "a\u{fffd}[31mb\u{fffd}\u{fffd}");
    }

    #[test]
    fn ages_and_durations_read_well() {
        let now = Timestamp::from_second(1_000_000).unwrap();
        let ago = |seconds: i64| {
            age(
                now,
                Some(Timestamp::from_second(1_000_000 - seconds).unwrap()),
            )
        };
        assert_eq!(
            [ago(5), ago(600), ago(10_000), ago(500_000), ago(-5)],
            ["5s", "10m", "2h", "5d", "now"]
        );
        assert_eq!(
            [duration(5), duration(1500), duration(130_000)],
            ["5 ms", "1.5 s", "2 min 10 s"]
        );
    }

    #[test]
    fn a_column_reads_the_first_value_that_there_is() {
        let now = Timestamp::from_second(1_000_000).unwrap();
        let item = serde_json::json!({ "a": null, "b": "two", "scope": { "site": "lab", "labels": {}, "rack": null } });
        assert_eq!(
            read(&item, &Column::new("X", "/a|/b", Form::Text), now),
            "two"
        );
        assert_eq!(read(&item, &Column::new("X", "/c", Form::Age), now), "");
        assert_eq!(
            read(&item, &Column::new("X", "/scope", Form::Scope), now),
            "site=lab"
        );
        assert_eq!(
            scope(&serde_json::json!({ "site": null, "labels": {} })),
            "everywhere"
        );
    }
}
