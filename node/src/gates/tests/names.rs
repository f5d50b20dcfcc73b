//! Names of processes, which are their users' own words: whatever they hold, nvidia-smi's answer reads as it does without them, or is none.

use super::recordings::fixture;
use crate::gates::parsers::{Answer, Reading, parse, text};

const NAME: &str = "/root/src/llama.cpp/build/bin/llama-server";

/// The recording, whose first process is called so.
pub(super) fn called(name: &[u8]) -> Vec<u8> {
    let recording = fixture("nvidia-smi-590.44.01-2xa5000-v13.xml");
    let (before, after) = recording.split_once(NAME).expect("a name");
    [before.as_bytes(), name, after.as_bytes()].concat()
}

fn read(answer: &[u8]) -> Result<Reading, String> {
    let text = text("nvidia-smi-xml", answer)?;
    parse(
        "nvidia-smi-xml",
        &Answer {
            exit: 0,
            text: &text,
            messages: "",
            serial: None,
        },
    )
}

#[test]
fn a_process_may_be_called_anything() {
    let wanted = read(&called(NAME.as_bytes()));
    assert!(wanted.is_ok());
    for name in [
        &b"\xff\xff\xff"[..],
        b"python -c a && b",
        b"python --x=<y>",
        b"",
        b"a &unknown; <!-- <![CDATA[ <?pi <gpu id=\"00000000:99:00.0\">",
        b"</process_name>",
        b"</process_name></process_info></processes><gpu_recovery_action>None</gpu_recovery_action>",
    ] {
        assert_eq!(read(&called(name)), wanted, "{}", String::from_utf8_lossy(name));
    }
    let elsewhere = |from: &str, to: &[u8]| {
        let recording = fixture("nvidia-smi-590.44.01-2xa5000-v13.xml");
        let (before, after) = recording.split_once(from).expect("its place");
        [before.as_bytes(), to, after.as_bytes()].concat()
    };
    assert!(read(&elsewhere("NVIDIA RTX A5000", b"\xff")).is_err_and(|why| why.contains("UTF-8")));
    assert!(
        text("nvidia-smi-text", b"\xff").is_err(),
        "only where names are cut out"
    );
}

/// Names that leave their element and come back to it, of one process and of one on either GPU: what they say must not be read.
#[test]
fn no_name_tells_of_gpus() {
    const LEAVES: &str = "</process_name></process_info></processes>";
    const RETURNS: &str = "<processes><process_info><process_name>";
    let wanted = read(&called(NAME.as_bytes()));
    let more = read(&called(
        b"a</process_name></process_info><process_info><process_name>b",
    ))
    .expect("a process more");
    assert_eq!(more.number("gpu.processes", "0000:81:00.0"), Some(2.0));
    let told = "<gpu_recovery_action>None</gpu_recovery_action><never_told>0</never_told>";
    for forged in [
        format!("{LEAVES}{told}{RETURNS}"),
        format!("{LEAVES}</gpu><gpu id=\"00000000:99:00.0\">{told}{RETURNS}"),
        format!(
            "{LEAVES}</gpu></nvidia_smi_log><nvidia_smi_log><gpu id=\"00000000:99:00.0\">{RETURNS}"
        ),
        format!(
            "{LEAVES}</gpu><attached_gpus>3</attached_gpus><gpu id=\"00000000:99:00.0\">{RETURNS}"
        ),
        format!("</process_name><a>{RETURNS}"),
        "<process_name>".into(),
    ] {
        assert!(read(&called(forged.as_bytes())).is_err(), "{forged}");
    }
    // A GPU between two processes, hidden by their names, with another in its place.
    for (begins, ends) in [
        ("<!--", "-->"),
        ("<![CDATA[", "]]>"),
        ("<?a ", "?>"),
        ("<?xml ", "?>"),
        ("<a b='", "'/>"),
        ("<gpu id='", "'/>"),
        ("<gpu id=\"00000000:99:00.0\" a='", "'>"),
        ("<!DOCTYPE nvidia_smi_log [", "]>"),
    ] {
        let first = format!(
            "{LEAVES}</gpu><gpu id=\"00000000:C1:00.0\">{told}<processes><process_info>{begins}<process_name>"
        );
        let second = format!("</process_name>{ends}<process_name>");
        let text = String::from_utf8(called(first.as_bytes()))
            .expect("a text")
            .replace(NAME, &second);
        let found = read(text.as_bytes());
        assert!(found.is_err() || found == wanted, "{begins}: {found:?}");
    }
}
