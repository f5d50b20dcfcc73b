//! The report of a run by hand: one document for programs, a table for people.

use muster_core::gates::{GateResult, Mode, Suite, SuiteVerdict, Verdict, blocks};
use muster_core::profiles::HardwareProfile;
use muster_core::values::Digest;
use serde::Serialize;

/// A run with its verdict.
pub(super) struct Report<'a> {
    pub(super) suite: &'a Suite,
    pub(super) profile: &'a HardwareProfile,
    pub(super) verdict: SuiteVerdict,
    /// Fingerprint of the hardware.
    pub(super) fingerprint: Digest,
    pub(super) results: &'a [GateResult],
}

#[derive(Serialize)]
struct Document<'a> {
    suite: &'a str,
    version: &'a str,
    profile: &'a str,
    verdict: &'a str,
    fingerprint: Digest,
    results: Vec<GateResult>,
}

/// Width of the terminal as reported by the shell, with a default of a sentence's length.
pub(super) fn width() -> usize {
    let told = std::env::var("COLUMNS")
        .ok()
        .and_then(|columns| columns.parse().ok());
    told.unwrap_or(160).clamp(80, 400)
}

impl Report<'_> {
    /// `{suite, version, profile, verdict, fingerprint, results}`.
    pub(super) fn json(&self) -> String {
        let document = Document {
            suite: &self.suite.name,
            version: &self.suite.version,
            profile: &self.profile.model,
            verdict: self.verdict.as_str(),
            fingerprint: self.fingerprint,
            results: self
                .results
                .iter()
                .map(|result| result.clone().explained(self.suite))
                .collect(),
        };
        serde_json::to_string_pretty(&document).unwrap_or_default()
    }

    /// Prints a line per gate, the finding below each blocking gate, and the verdict.
    pub(super) fn table(&self, columns: usize, coloured: bool) -> String {
        let widest = self
            .results
            .iter()
            .map(|result| result.gate.len())
            .max()
            .unwrap_or(0)
            .max(4);
        let room = columns.saturating_sub(widest + 33);
        let mut lines = vec![format!(
            "{:<8} {:<widest$} {:<9} {:>9}  WHAT",
            "VERDICT", "GATE", "COUNTS", "TOOK"
        )];
        for result in self.results {
            let mode = mode(result);
            let verdict = format!("{:<8}", result.verdict.as_str());
            let verdict = if coloured {
                painted(&verdict, result.verdict, mode)
            } else {
                verdict
            };
            let took = format!("{:.2} s", result.duration_ms as f64 / 1000.0);
            let reason = cut(&result.reason, room);
            lines.push(format!(
                "{verdict} {:<widest$} {:<9} {took:>9}  {reason}",
                result.gate,
                mode.as_str()
            ));
            if blocks(mode, result.verdict) && result.verdict == Verdict::Fail {
                let finding = self
                    .suite
                    .gates
                    .iter()
                    .find(|gate| gate.id == result.gate)
                    .map(|gate| &gate.finding);
                lines.extend(finding.map(|finding| {
                    format!("{:<8} {}", "", cut(finding, columns.saturating_sub(10)))
                }));
            }
        }
        let blocking = self
            .results
            .iter()
            .filter(|result| blocks(mode(result), result.verdict))
            .count();
        let name = format!(
            "{} {} on {}",
            self.suite.name, self.suite.version, self.profile.model
        );
        lines.push(String::new());
        lines.push(match self.verdict {
            SuiteVerdict::Pass => format!("{name}: pass, {} gates", self.results.len()),
            verdict => format!(
                "{name}: {}, {blocking} of {} gates block",
                verdict.as_str(),
                self.results.len()
            ),
        });
        lines.join("\n")
    }
}

fn mode(result: &GateResult) -> Mode {
    match (result.shadow, result.required) {
        (true, _) => Mode::Shadow,
        (false, true) => Mode::Required,
        (false, false) => Mode::Optional,
    }
}

fn painted(text: &str, verdict: Verdict, mode: Mode) -> String {
    let colour = match verdict {
        Verdict::Pass => 32,
        _ if !blocks(mode, verdict) => 2,
        Verdict::Fail => 31,
        Verdict::Error | Verdict::Skipped => 33,
    };
    format!("\x1b[{colour}m{text}\x1b[0m")
}

/// Returns a line of limited length. Control characters from a tool's answer are removed.
fn cut(text: &str, room: usize) -> String {
    let plain: String = text
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect();
    match plain.chars().count() > room {
        true => plain
            .chars()
            .take(room.saturating_sub(1))
            .chain(['…'])
            .collect(),
        false => plain,
    }
}
