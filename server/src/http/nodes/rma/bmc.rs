//! BMC data for the archive: firmware and BIOS as last read, and the lines of event log and sensors
//! collected by agents after a failed job. All data comes from the database. The BMC is not read
//! for the archive.

use std::net::{IpAddr, SocketAddr};

use muster_core::ids::NodeId;
use serde_json::json;
use sqlx::PgConnection;

use super::File;
use crate::db;
use crate::db::pages::nodes::BmcLine;
use crate::error::Error;

/// The largest number of log lines; the newest are kept.
const LINES: i64 = 2000;

/// Builds `bmc.json` and `bmc-log.txt`. Unread values are marked as unknown.
pub(super) async fn build_files(conn: &mut PgConnection, node: NodeId) -> Result<[File; 2], Error> {
    let lines = db::pages::nodes::list_bmc_lines(conn, node, LINES).await?;
    let document = match db::firmware::latest(conn, node).await? {
        Some(seen) => json!({
            "first_seen": seen.first_seen, "last_seen": seen.last_seen, "firmware": seen.inventory.firmware,
            "bios_attributes": seen.inventory.bios, "could_not_be_read": seen.inventory.unread, "log_lines": lines.len(),
        }),
        None => {
            json!({ "firmware": "not known: its BMC was never read", "log_lines": lines.len() })
        }
    };
    let log = match lines.is_empty() {
        true => {
            "No line: a BMC's event log and sensors are read when a job that powers the machine fails.\n".to_owned()
        }
        false => lines.iter().rev().map(format_line).collect(),
    };
    Ok([
        super::json("bmc.json", &document)?,
        ("bmc-log.txt".to_owned(), log),
    ])
}

fn format_line(line: &BmcLine) -> String {
    format!(
        "{}  {}  {}\n",
        line.at.strftime("%F %T UTC"),
        line.step,
        without_addresses(&line.text)
    )
}

/// Replaces IP addresses in a text. Event logs of BMCs name the addresses of logins, and a maker
/// has no need for these.
fn without_addresses(text: &str) -> String {
    let plain = |word: &str| {
        let bare = word.trim_matches(|c: char| c.is_ascii_punctuation());
        let address = bare.parse::<IpAddr>().is_ok() || bare.parse::<SocketAddr>().is_ok();
        // A short number between punctuation is not an address, although short IPv6 addresses
        // exist.
        if address && bare.len() > 3 {
            word.replace(bare, "[address]")
        } else {
            word.to_owned()
        }
    };
    text.replace('\n', " ")
        .split(' ')
        .map(plain)
        .collect::<Vec<_>>()
        .join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_no_word_of_a_bmcs_log() {
        for (said, told) in [
            (
                "BMC event log, 2026-01-05T07:59:30Z: OK: root logged in from 10.0.0.5.",
                "root logged in from [address].",
            ),
            (
                "session (10.0.0.5:443) closed",
                "session ([address]) closed",
            ),
            (
                "from fe80::1ff:fe23:4567:890a, by IPMI",
                "from [address], by IPMI",
            ),
            ("BMC sensor 12V: 12.1 V, OK", "12V: 12.1 V, OK"),
            ("two\nlines", "two lines"),
        ] {
            assert!(
                without_addresses(said).ends_with(told),
                "{}",
                without_addresses(said)
            );
        }
    }
}
