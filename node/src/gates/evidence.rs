//! Evidence of a gate: the ends of the tool's output and of its files, within bounds.

use muster_core::gates::{Evidence, Gate};

use super::parsers;
use super::scratch::Scratch;
use crate::{files, tool};

/// Size of the kept end of each stream and file, in bytes.
pub(super) const EVIDENCE_MAX: usize = 64 << 10;

/// Adds the output of a run to the evidence, the newest at the end, within the bound.
pub(super) fn keep_output(
    evidence: &mut Evidence,
    title: Option<&str>,
    stdout: &[u8],
    stderr: &[u8],
) {
    for (kept, stream) in [
        (&mut evidence.stdout, stdout),
        (&mut evidence.stderr, stderr),
    ] {
        let text = tool::tail(stream, EVIDENCE_MAX);
        if text.is_empty() {
            continue;
        }
        let title = title
            .map(|title| format!("== {title}\n"))
            .unwrap_or_default();
        let joined = format!(
            "{kept}{}{title}{text}",
            if kept.is_empty() { "" } else { "\n" }
        );
        *kept = tool::tail(joined.as_bytes(), EVIDENCE_MAX);
    }
}

/// Keeps the ends of the files named by the gate. Missing files are skipped.
pub(super) fn keep_files(
    evidence: &mut Evidence,
    gate: &Gate,
    scratch: &Scratch,
    serial: Option<&str>,
) {
    for name in gate.output.iter().chain(&gate.keep) {
        let most = parsers::answer_max(&gate.parser) as u64;
        let Ok(bytes) = files::read_capped(&scratch.path().join(name), most) else {
            continue;
        };
        let name = serial.map_or_else(|| name.clone(), |serial| format!("{serial}/{name}"));
        evidence
            .files
            .insert(name, tool::tail(&bytes, EVIDENCE_MAX));
    }
}
