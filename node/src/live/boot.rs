//! The boot parameters on the kernel command line. The command line came over the network, so every
//! word is checked.

use muster_core::values::Mac;
use muster_core::wire::node::{Failure, FailureCode};

use crate::failure::{fatal, io};
use crate::{files, paths};

/// The parameters of a boot armed by the agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Boot {
    /// Base URL of the boot listener, without a trailing slash.
    pub url: String,
    /// 16 bytes in hex.
    pub nonce: String,
    pub mac: Mac,
}

impl Boot {
    /// Reads /proc/cmdline.
    ///
    /// # Errors
    /// `not_live` when a word is missing or wrong.
    pub fn read() -> Result<Self, Failure> {
        let bytes = files::read_capped(&paths::at("/proc/cmdline"), 64 << 10)
            .map_err(io("/proc/cmdline"))?;
        Self::parse(&String::from_utf8_lossy(&bytes))
    }

    /// Parses a kernel command line.
    ///
    /// # Errors
    /// As [`Boot::read`].
    pub fn parse(line: &str) -> Result<Self, Failure> {
        let word = |name: &str| {
            let found = line
                .split_whitespace()
                .rev()
                .find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
            found.ok_or_else(|| {
                fatal(
                    FailureCode::NotLive,
                    format!("the kernel command line has no {name}: not booted by Muster"),
                )
            })
        };
        let wrong = |name: &str| {
            fatal(
                FailureCode::NotLive,
                format!("{name} on the kernel command line is invalid"),
            )
        };
        let url = word("muster.url")?.trim_end_matches('/');
        let nonce = word("muster.nonce")?;
        if !url.starts_with("http://") {
            return Err(wrong("muster.url"));
        }
        if nonce.len() != 32 || !nonce.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(wrong("muster.nonce"));
        }
        let mac = word("muster.mac")?
            .parse()
            .map_err(|_| wrong("muster.mac"))?;
        Ok(Self {
            url: url.into(),
            nonce: nonce.into(),
            mac,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_three_words_must_be_there_and_right() {
        let good = "console=ttyS0 muster.url=http://10.77.0.1:8090/boot/v1/ muster.nonce=00112233445566778899aabbccddeeff muster.mac=52:54:00:00:00:01";
        let boot = Boot::parse(good).unwrap();
        assert_eq!(boot.url, "http://10.77.0.1:8090/boot/v1");
        for (from, to) in [
            ("http:", "ftp:"),
            ("0011", "zz11"),
            ("0011", "1"),
            ("52:54", "52"),
            ("muster.mac", "mac"),
        ] {
            assert_eq!(
                Boot::parse(&good.replacen(from, to, 1)).unwrap_err().code,
                FailureCode::NotLive,
                "{from}"
            );
        }
    }
}
