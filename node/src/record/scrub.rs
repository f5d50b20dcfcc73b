//! Pseudonyms for identifying values. Values with a recognizable shape (UUIDs, MAC and IP
//! addresses, port GUIDs) are found anywhere. Serial numbers have no shape: a serial is learned
//! from a label in an output, and then found anywhere. A value always gets the same pseudonym of
//! the same shape, so that parsers read both alike.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, Ipv6Addr};

/// Keys of serial numbers and other unique marks, in lower case.
const LABELS: [&str; 14] = [
    "serial",
    "serial number",
    "serial_number",
    "serialnumber",
    "serial_num",
    "gpu board serial number",
    "chassis_serial_number",
    "chassis serial number",
    "board serial number",
    "unique id",
    "asic_serial",
    "product_serial",
    "gpu pdi",
    "pdi",
];
/// Placeholders printed for a missing serial.
const NO_SERIAL: [&str; 8] = [
    "n/a",
    "[n/a]",
    "none",
    "unknown",
    "0",
    "<<<not_supported>>>",
    "not specified",
    "0x0000000000000000",
];
const SERIAL_MAX: usize = 64;
/// Most learned values, a bound against hostile outputs.
const LEARNT_MAX: usize = 10_000;

/// The values and pseudonyms seen so far.
#[derive(Debug, Default)]
pub struct Scrubber {
    known: BTreeMap<String, String>,
    counts: BTreeMap<&'static str, usize>,
}

impl Scrubber {
    /// Builds a scrubber knowing this machine's name.
    pub fn of_this_machine() -> Self {
        let mut scrubber = Self::default();
        if let Ok(name) = std::fs::read_to_string("/proc/sys/kernel/hostname") {
            scrubber.learn_host(name.trim());
        }
        scrubber
    }

    /// Learns a host's name, with and without its domain.
    pub fn learn_host(&mut self, name: &str) {
        let short = name.split('.').next().unwrap_or_default();
        for name in [name, short] {
            // A name below 3 characters would match inside other words.
            if name.len() >= 3 && name != "localhost" {
                self.pseudonym("host names", name, |number| format!("host-{number}"));
            }
        }
    }

    /// Learns labelled serial numbers.
    pub fn learn(&mut self, text: &str) {
        for line in text.lines() {
            if let Some(serial) = labelled(line)
                && self.known.len() < LEARNT_MAX
            {
                self.pseudonym("serial numbers", &serial, |number| {
                    format!("SERIAL{number:06}")
                });
            }
        }
    }

    /// Returns the text with pseudonyms.
    pub fn scrub(&mut self, text: &str) -> String {
        let mut out = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(start) = rest.find(is_word) {
            out.push_str(&rest[..start]);
            rest = &rest[start..];
            let end = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
            let (word, after) = rest.split_at(end);
            out.push_str(&self.word(word));
            rest = after;
        }
        out.push_str(rest);
        out
    }

    /// Returns the number of distinct values so far, by kind.
    pub fn counts(&self) -> Vec<(String, usize)> {
        self.counts
            .iter()
            .map(|(kind, count)| ((*kind).to_owned(), *count))
            .collect()
    }

    fn word(&mut self, word: &str) -> String {
        // Dots and dashes at the ends belong to the sentence.
        let core = word.trim_matches(|c: char| matches!(c, '.' | ':' | '-' | '_'));
        let Some(at) = word.find(core).filter(|_| !core.is_empty()) else {
            return word.to_owned();
        };
        let (before, after) = (&word[..at], &word[at + core.len()..]);
        match self.replaced(core) {
            Some(pseudonym) => format!("{before}{pseudonym}{after}"),
            None => word.to_owned(),
        }
    }

    fn replaced(&mut self, word: &str) -> Option<String> {
        if let Some(pseudonym) = self.known.get(word) {
            return Some(pseudonym.clone());
        }
        // `GPU-512e4567-…`, `MIG-…`: the prefix stays.
        for prefix in ["GPU-", "MIG-"] {
            if let Some(uuid) = word.strip_prefix(prefix).filter(|uuid| is_uuid(uuid)) {
                return Some(format!("{prefix}{}", self.uuid(uuid)));
            }
        }
        if is_uuid(word) {
            return Some(self.uuid(word));
        }
        if is_hex_groups(word, ':', 6, 2) || is_hex_groups(word, '-', 6, 2) {
            return Some(self.pseudonym("MAC addresses", word, |number| {
                format!("02:00:00:00:{:02x}:{:02x}", number >> 8 & 255, number & 255)
            }));
        }
        // A port's GUID: `0x506b4b03005c2740`, `506b:4b03:005c:2740`. Hex numbers without a vendor
        // part are plain numbers.
        let guid = word
            .strip_prefix("0x")
            .is_some_and(|hex| hex.len() == 16 && hex.chars().all(|c| c.is_ascii_hexdigit()));
        if guid && !word.starts_with("0x00000") && !word.starts_with("0xffffffff") {
            return Some(self.pseudonym("GUIDs", word, |number| format!("0x0200{number:012x}")));
        }
        if is_hex_groups(word, ':', 4, 4) {
            return Some(self.pseudonym("GUIDs", word, |number| {
                format!(
                    "0200:0000:{:04x}:{:04x}",
                    number >> 16 & 0xffff,
                    number & 0xffff
                )
            }));
        }
        // A GID in perftest's form, sixteen numbers.
        if word.split(':').count() == 16 && word.split(':').all(|group| group.parse::<u8>().is_ok())
        {
            return Some(self.pseudonym("GIDs", word, |number| {
                format!(
                    "02:00:00:00:00:00:00:00:00:00:00:00:00:00:{:02}:{:02}",
                    number / 100 % 100,
                    number % 100
                )
            }));
        }
        self.address(word)
    }

    fn address(&mut self, word: &str) -> Option<String> {
        let (host, port) = match word.split_once(':') {
            Some((host, port)) if port.parse::<u16>().is_ok() && host.contains('.') => {
                (host, Some(port))
            }
            _ => (word, None),
        };
        if let Ok(address) = host.parse::<Ipv4Addr>() {
            // Version numbers look like addresses; the versions of programs begin with small
            // numbers.
            if address.is_loopback()
                || address.is_unspecified()
                || address.is_broadcast()
                || address.octets()[0] < 10
            {
                return None;
            }
            let pseudonym = self.pseudonym("IP addresses", host, |number| {
                format!("192.0.2.{}", number % 254 + 1)
            });
            return Some(port.map_or(pseudonym.clone(), |port| format!("{pseudonym}:{port}")));
        }
        let address: Ipv6Addr = host.parse().ok().filter(|_| host.contains(':'))?;
        if address.is_loopback() || address.is_unspecified() {
            return None;
        }
        Some(self.pseudonym("IP addresses", host, |number| {
            format!("2001:db8::{number:x}")
        }))
    }

    fn uuid(&mut self, uuid: &str) -> String {
        // A UUID of zeros means a missing UUID, or an earlier scrubbing.
        if uuid.chars().all(|c| matches!(c, '0' | '-')) {
            return uuid.to_owned();
        }
        self.pseudonym("UUIDs", uuid, |number| {
            format!("00000000-0000-4000-8000-{number:012x}")
        })
    }

    fn pseudonym(
        &mut self,
        kind: &'static str,
        value: &str,
        shaped: impl Fn(usize) -> String,
    ) -> String {
        if let Some(known) = self.known.get(value) {
            return known.clone();
        }
        let count = self.counts.entry(kind).or_default();
        *count += 1;
        let pseudonym = shaped(*count);
        self.known.insert(value.to_owned(), pseudonym.clone());
        pseudonym
    }
}

/// Whether the character belongs to a word. Every recognizable shape consists of such characters;
/// quotes, commas, brackets and spaces separate words.
fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '.' | ':' | '-' | '_')
}

fn is_uuid(word: &str) -> bool {
    let groups: Vec<&str> = word.split('-').collect();
    let hex = |group: &&str| group.chars().all(|c| c.is_ascii_hexdigit());
    groups.iter().map(|group| group.len()).eq([8, 4, 4, 4, 12]) && groups.iter().all(hex)
}

fn is_hex_groups(word: &str, between: char, groups: usize, digits: usize) -> bool {
    word.split(between).count() == groups
        && word
            .split(between)
            .all(|group| group.len() == digits && group.chars().all(|c| c.is_ascii_hexdigit()))
}

/// Returns the serial number of a line with a label: `<serial>…</serial>`, `Serial Number : …`,
/// `"serial_number": "…"`.
fn labelled(line: &str) -> Option<String> {
    let line = line.trim();
    // dmesg prints the time before the words.
    let line = line
        .split_once("NVRM: ")
        .map_or(line, |(_, message)| message);
    let (label, value) = match line.strip_prefix('<') {
        Some(element) => {
            let (label, rest) = element.split_once('>')?;
            (label, rest.split_once("</")?.0)
        }
        None => line.split_once(':')?,
    };
    let label = label.trim().trim_matches('"').to_ascii_lowercase();
    let value = value.trim().trim_end_matches(',').trim_matches('"').trim();
    let plain = value.len() >= 4 && value.len() <= SERIAL_MAX && value.chars().all(is_word);
    let known = LABELS.contains(&label.as_str())
        && plain
        && !NO_SERIAL.contains(&value.to_ascii_lowercase().as_str());
    known.then(|| value.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAID: &str = "<serial>1650522003820</serial>\n<uuid>GPU-513536b6-7d19-9063-b049-1e69664bb298</uuid>\n\
        1, 1650522003820, GPU-513536b6-7d19-9063-b049-1e69664bb298, 00000000:01:00.0, 535.54.03\n\
        Port GUID: 0x506b4b03005c2740\nnode_guid: 506b:4b03:005c:2740\nlink/ether 52:54:00:12:34:56 inet 10.9.0.2/24\n\
        \"serial_number\": \"S64GNE0T\",\nrack7-node3 said at 16:24:18 that it is rack7-node3.example.net\n\
        GID: 00:00:00:00:00:00:00:00:00:00:255:255:10:09:00:02\n";

    fn scrubbed() -> (String, Scrubber) {
        let mut scrubber = Scrubber::default();
        scrubber.learn_host("rack7-node3.example.net");
        scrubber.learn(SAID);
        (scrubber.scrub(SAID), scrubber)
    }

    #[test]
    fn nothing_that_names_the_machine_stays() {
        let (text, scrubber) = scrubbed();
        let secrets = [
            "1650522003820",
            "513536b6",
            "506b4b03",
            "506b:4b03",
            "52:54:00:12",
            "10.9.0.2",
            "S64GNE0T",
            "rack7",
            "255:255:10:09",
        ];
        secrets
            .iter()
            .for_each(|secret| assert!(!text.contains(secret), "{secret} in {text}"));
        let counts = scrubber.counts();
        assert!(
            counts.contains(&("serial numbers".to_owned(), 2)),
            "{counts:?}"
        );
        assert!(
            counts.contains(&("UUIDs".to_owned(), 1)),
            "the same value counts once: {counts:?}"
        );
    }

    #[test]
    fn the_same_value_has_the_same_pseudonym_and_the_rest_stays() {
        let (text, _) = scrubbed();
        assert_eq!(text.matches("SERIAL000001").count(), 2, "{text}");
        assert_eq!(
            text.matches("GPU-00000000-0000-4000-8000-000000000001")
                .count(),
            2,
            "{text}"
        );
        for kept in ["00000000:01:00.0", "535.54.03", "16:24:18", "/24"] {
            assert!(text.contains(kept), "{kept} in {text}");
        }
    }
}
