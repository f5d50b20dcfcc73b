//! Folders of recordings, with real programs.

use std::path::Path;
use std::time::Duration;

use serde_json::Value;

use super::{ASKED_FILES, Asked, OUTPUT_MAX, command, run};
use muster_core::wire::node::FailureCode;

const SAID: &str =
    "Serial Number : S64GNE0T\nGPU-512e4567-e89b-42d3-a456-426614174000 at 172.16.9.4\n";

fn asked<'a>(argv: &[&'a str], seconds: u64) -> Asked<'a> {
    Asked {
        argv: argv.to_vec(),
        timeout: Duration::from_secs(seconds),
    }
}

fn read(folder: &Path, file: &str) -> String {
    std::fs::read_to_string(folder.join(file)).unwrap_or_else(|error| panic!("{file}: {error}"))
}

/// Returns the command's entry of the index, after a run into a new folder.
fn recorded(folder: &Path, asked: &Asked<'_>) -> Value {
    let lines = run(folder, Some(asked)).expect("a folder of recordings");
    assert!(lines[0].starts_with(ASKED_FILES[0]), "{lines:?}");
    let index: Value = serde_json::from_str(&read(folder, "index.json")).expect("the index");
    index["recordings"][0].clone()
}

#[test]
fn a_recording_has_scrubbed_arguments_and_machine_data() {
    let place = tempfile::tempdir().expect("a folder");
    let folder = place.path().join("one");
    let entry = recorded(&folder, &asked(&["printf", "%s", SAID], 60));
    assert_eq!(
        (entry["exit"].as_i64(), entry["remark"].as_str()),
        (Some(0), None),
        "{entry}"
    );
    let (text, index) = (read(&folder, ASKED_FILES[0]), read(&folder, "index.json"));
    for secret in ["S64GNE0T", "512e4567", "172.16.9.4"] {
        assert!(
            !text.contains(secret) && !index.contains(secret),
            "{secret} in {text} or {index}"
        );
    }
    assert!(
        text.starts_with("Serial Number : SERIAL0") && text.ends_with(" at 192.0.2.2\n"),
        "{text}"
    );
    assert_eq!(
        (entry["argv"][0].as_str(), entry["argv"][2].as_str()),
        (Some("printf"), Some(text.as_str()))
    );
    assert!(
        !folder.join(ASKED_FILES[1]).exists(),
        "it said nothing there"
    );
    let all: Value = serde_json::from_str(&index).expect("the index");
    assert!(
        all["recordings"]
            .as_array()
            .is_some_and(|all| all.len() > 20),
        "what the machine has stands beside it"
    );
    assert!(!read(&folder, "df-space.txt").is_empty());
    let again = run(&folder, Some(&asked(&["printf", "no"], 60))).expect_err("the folder is there");
    assert_eq!(again.code, FailureCode::Io);
    assert_eq!(
        read(&folder, ASKED_FILES[0]),
        text,
        "nothing of it was touched"
    );
}

#[test]
fn failures_hangs_and_floods_of_a_command_are_kept_as_such() {
    let place = tempfile::tempdir().expect("a folder");
    let of = |name: &str, argv: &[&str], seconds| {
        recorded(&place.path().join(name), &asked(argv, seconds))
    };
    let failed = of("failed", &["ls", "/nowhere-172.16.9.4"], 60);
    assert_eq!(
        (failed["exit"].as_i64(), failed["remark"].as_str()),
        (Some(2), Some("ended with 2")),
        "{failed}"
    );
    assert_eq!(failed["messages"].as_str(), Some(ASKED_FILES[1]));
    assert!(read(&place.path().join("failed"), ASKED_FILES[1]).contains("No such file"));
    let hung = of("hung", &["tail", "-f", "/proc/self/limits"], 1);
    assert_eq!(
        (hung["exit"].as_i64(), hung["remark"].as_str()),
        (None, Some("did not end within 1 s")),
        "{hung}"
    );
    assert!(
        read(&place.path().join("hung"), ASKED_FILES[0]).contains("Max open files"),
        "what it had said is kept"
    );
    let flood = of("flood", &["head", "-c", "9000000", "/dev/zero"], 60);
    assert_eq!(flood["remark"].as_str(), Some("cut"), "{flood}");
    assert_eq!(
        read(&place.path().join("flood"), ASKED_FILES[0]).len(),
        OUTPUT_MAX
    );
}

#[test]
fn a_command_that_cannot_run_leaves_no_folder() {
    let place = tempfile::tempdir().expect("a folder");
    let folder = place.path().join("none");
    for (argv, seconds, code) in [
        (&["no-such-program"][..], 60, "tool_missing"),
        (&[][..], 60, "usage"),
        (&["true"][..], 0, "usage"),
        (&["true"][..], 86_401, "usage"),
    ] {
        assert_eq!(
            run(&folder, Some(&asked(argv, seconds)))
                .expect_err("no recording")
                .code
                .as_str(),
            code,
            "{argv:?} {seconds}"
        );
        assert!(!folder.exists(), "{argv:?}");
    }
    let name = folder.display().to_string();
    for words in [
        &[][..],
        &[&name, "true"],
        &[&name, "--timeout", "soon", "--", "true"],
        &[&name, "--timeout", "5"],
    ] {
        assert!(command(words).is_none() && !folder.exists(), "{words:?}");
    }
}
