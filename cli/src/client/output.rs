//! Tables for people, JSON and YAML for programs. What a table shows may come from a machine nobody trusts: control characters are shown,
//! never sent to the terminal.

use clap::{Args, ValueEnum};
use comfy_table::presets::NOTHING;
use comfy_table::{ContentArrangement, Table};
use jiff::Timestamp;
use serde::Serialize;

/// How to print.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct Output {
    /// How to print: a table is for people and may change.
    #[arg(short, long, value_enum, default_value = "table", global = true, help_heading = "Output")]
    output: Format,
    /// The same as `-o json`.
    #[arg(long, global = true, help_heading = "Output")]
    json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    Table,
    Wide,
    Json,
    Yaml,
}

/// Rows under headings.
pub(crate) struct Rows<const N: usize> {
    pub(crate) headings: [&'static str; N],
    pub(crate) rows: Vec<[String; N]>,
    /// Columns from this one on are shown by `-o wide` only.
    pub(crate) wide_from: usize,
}

impl Output {
    /// Whether a person reads it.
    pub(crate) fn is_table(self) -> bool {
        !self.json && matches!(self.output, Format::Table | Format::Wide)
    }

    /// Prints documents, or the table made of them.
    pub(crate) fn print<T: Serialize, const N: usize>(
        self,
        value: &T,
        table: impl FnOnce() -> Rows<N>,
    ) -> anyhow::Result<()> {
        match (self.json, self.output) {
            (true, _) | (_, Format::Json) => println!("{}", serde_json::to_string_pretty(value)?),
            (_, Format::Yaml) => print!("{}", serde_yaml_ng::to_string(value)?),
            (_, Format::Table) => {
                let rows = table();
                let columns = rows.wide_from;
                show(&rows, columns);
            }
            (_, Format::Wide) => show(&table(), N),
        }
        Ok(())
    }

    /// Prints a document, or the lines that tell it.
    pub(crate) fn print_lines<T: Serialize>(
        self,
        value: &T,
        lines: impl FnOnce() -> Vec<String>,
    ) -> anyhow::Result<()> {
        match self.is_table() {
            true => lines().iter().for_each(|line| println!("{}", clean(line))),
            false => self.print(value, || Rows { headings: [], rows: Vec::new(), wide_from: 0 })?,
        }
        Ok(())
    }
}

fn show<const N: usize>(rows: &Rows<N>, columns: usize) {
    let mut table = Table::new();
    table.load_style(NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(&rows.headings[..columns]);
    for row in &rows.rows {
        table.add_row(row[..columns].iter().map(|cell| clean(cell)));
    }
    for line in table.lines() {
        println!("{}", line.trim_end());
    }
}

/// Text that a terminal takes as text.
pub(crate) fn clean(text: &str) -> String {
    text.chars().map(|c| if c.is_control() && c != '\n' { '\u{fffd}' } else { c }).collect()
}

/// How long ago, in the largest unit that says enough.
pub(crate) fn age(now: Timestamp, then: Option<Timestamp>) -> String {
    let Some(then) = then else { return String::new() };
    let seconds = now.duration_since(then).as_secs();
    match seconds {
        ..0 => "now".into(),
        0..120 => format!("{seconds}s"),
        120..7200 => format!("{}m", seconds / 60),
        7200..172_800 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86_400),
    }
}

/// A number of milliseconds for people.
pub(crate) fn duration(milliseconds: i64) -> String {
    match milliseconds {
        ..1000 => format!("{milliseconds} ms"),
        1000..120_000 => format!("{}.{} s", milliseconds / 1000, milliseconds % 1000 / 100),
        _ => format!("{} min {} s", milliseconds / 60_000, milliseconds % 60_000 / 1000),
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
        let ago = |seconds: i64| age(now, Some(Timestamp::from_second(1_000_000 - seconds).unwrap()));
        assert_eq!([ago(5), ago(600), ago(10_000), ago(500_000), ago(-5)], ["5s", "10m", "2h", "5d", "now"]);
        assert_eq!([duration(5), duration(1500), duration(130_000)], ["5 ms", "1.5 s", "2 min 10 s"]);
    }
}
