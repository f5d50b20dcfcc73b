//! The clock and background tasks: values with an owner.

use super::source::{Source, lex, word_offsets};

/// Readers of the machine's clock.
const CLOCKS: [&str; 3] = ["Timestamp::now", "SystemTime::now", "Zoned::now"];
/// Starters of work that nobody waits for.
const SPAWNERS: [&str; 4] = [
    "tokio::spawn",
    "task::spawn",
    "thread::spawn",
    "task::spawn_local",
];

/// Readers of the machine's clock in a production file.
pub(super) fn clock_reads(source: &Source) -> Vec<&'static str> {
    calls(source, &CLOCKS)
}

/// Starters of tasks and threads without an owner in a production file.
pub(super) fn unowned_tasks(source: &Source) -> Vec<&'static str> {
    calls(source, &SPAWNERS)
}

fn calls(source: &Source, names: &[&'static str]) -> Vec<&'static str> {
    let code = lex(&source.production()).code;
    let called = names
        .iter()
        .filter(|name| !word_offsets(&code, name).is_empty());
    called.copied().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(text: &str) -> Source {
        Source {
            path: "server/src/tasks/leases.rs".to_owned(),
            text: text.to_owned(),
        }
    }

    #[test]
    fn a_read_of_the_machines_clock_is_found() {
        for planted in [
            "fn f() { let now = jiff::Timestamp::now(); }",
            "fn f() { at.unwrap_or_else(Timestamp::now) }",
            "fn f() { std::time::SystemTime::now() }",
        ] {
            assert_eq!(clock_reads(&source(planted)).len(), 1, "{planted}");
        }
        let harmless =
            "// never Timestamp::now()\nfn f(clock: &Clock) { clock.now(); Timestamp::nowhere() }";
        assert!(clock_reads(&source(harmless)).is_empty());
    }

    #[test]
    fn a_task_without_an_owner_is_found() {
        for planted in [
            "fn f() { tokio::spawn(async {}); }",
            "use tokio::task;\nfn f() { task::spawn(async {}); }",
            "use std::thread;\nfn f() { let _ = thread::spawn(|| {}); }",
        ] {
            assert_eq!(unowned_tasks(&source(planted)).len(), 1, "{planted}");
        }
        let harmless = "fn f() { tasks.spawn(run()); tokio::task::spawn_blocking(work); }\n#[cfg(test)]\nmod tests {\n    fn g() { tokio::spawn(f()); }\n}\n";
        assert!(unowned_tasks(&source(harmless)).is_empty());
    }
}
