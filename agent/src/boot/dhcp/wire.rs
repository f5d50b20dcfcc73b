//! Encodes and decodes DHCP messages (RFC 2131, 2132, 3396). Muster has its own codec, because
//! firmware of any age sends the messages. An odd option must not hide later options, the parser
//! never panics, and malformed parts are skipped.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use muster_core::values::Mac;

/// Maximum size of a packet read. The socket cuts a longer packet, and the parser uses the received
/// part.
pub const MAX_PACKET: usize = 4096;
/// Minimum size of a packet sent. BOOTP clients and some firmware drop shorter packets (RFC 1542
/// §2.1).
const MIN_PACKET: usize = 300;
const FIXED: usize = 236;
const MAGIC_COOKIE: [u8; 4] = [99, 130, 83, 99];
const SNAME: std::ops::Range<usize> = 44..108;
const FILE: std::ops::Range<usize> = 108..236;
const BROADCAST_FLAG: u16 = 0x8000;

/// Option codes read or written by Muster.
pub mod code {
    pub const SUBNET_MASK: u8 = 1;
    pub const ROUTER: u8 = 3;
    pub const DNS: u8 = 6;
    pub const HOST_NAME: u8 = 12;
    pub const BROADCAST: u8 = 28;
    pub const VENDOR: u8 = 43;
    pub const REQUESTED_ADDRESS: u8 = 50;
    pub const LEASE_TIME: u8 = 51;
    pub const OVERLOAD: u8 = 52;
    pub const MESSAGE_TYPE: u8 = 53;
    pub const SERVER_ID: u8 = 54;
    pub const MESSAGE: u8 = 56;
    pub const VENDOR_CLASS: u8 = 60;
    pub const CLIENT_ID: u8 = 61;
    pub const TFTP_SERVER: u8 = 66;
    pub const BOOT_FILE: u8 = 67;
    pub const USER_CLASS: u8 = 77;
    pub const RELAY_AGENT: u8 = 82;
    pub const ARCHITECTURE: u8 = 93;
    pub const MACHINE_ID: u8 = 97;
    /// Encapsulated options of iPXE.
    pub const IPXE: u8 = 175;
}

/// The message type (option 53).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    Discover = 1,
    Offer = 2,
    Request = 3,
    Decline = 4,
    Ack = 5,
    Nak = 6,
    Release = 7,
    Inform = 8,
}

impl Kind {
    fn from_byte(byte: u8) -> Option<Self> {
        use Kind::{Ack, Decline, Discover, Inform, Nak, Offer, Release, Request};
        [Discover, Offer, Request, Decline, Ack, Nak, Release, Inform]
            .into_iter()
            .find(|kind| *kind as u8 == byte)
    }
}

/// The direction of a message, from BOOTP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Op {
    FromClient = 1,
    FromServer = 2,
}

/// A DHCP message. `file` is the boot file of the fixed header, at most 127 bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    pub op: Op,
    pub hops: u8,
    /// Transaction id, chosen by the client.
    pub xid: u32,
    /// Seconds since the client started.
    pub secs: u16,
    /// Whether the client requests a broadcast answer.
    pub broadcast: bool,
    /// Current address of the client.
    pub ciaddr: Ipv4Addr,
    /// Address assigned to the client.
    pub yiaddr: Ipv4Addr,
    /// Address of the next boot server.
    pub siaddr: Ipv4Addr,
    /// Address of the relay, zero without a relay.
    pub giaddr: Ipv4Addr,
    pub mac: Mac,
    pub file: Vec<u8>,
    pub options: Options,
}

/// The reason why bytes are not a usable DHCP message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotDhcp {
    #[error("shorter than a BOOTP header")]
    Short,
    #[error("no DHCP magic cookie")]
    NoCookie,
    #[error("operation is neither request nor reply")]
    Operation,
    #[error("hardware is not Ethernet")]
    Hardware,
}

impl Message {
    /// Parses a message. An option longer than the packet ends the list, and earlier options are
    /// kept.
    pub fn parse(bytes: &[u8]) -> Result<Self, NotDhcp> {
        let header = bytes.get(..FIXED).ok_or(NotDhcp::Short)?;
        if bytes.get(FIXED..FIXED + 4) != Some(MAGIC_COOKIE.as_slice()) {
            return Err(NotDhcp::NoCookie);
        }
        let op = match header[0] {
            1 => Op::FromClient,
            2 => Op::FromServer,
            _ => return Err(NotDhcp::Operation),
        };
        if (header[1], header[2]) != (1, 6) {
            return Err(NotDhcp::Hardware);
        }
        let address =
            |at: usize| Ipv4Addr::new(header[at], header[at + 1], header[at + 2], header[at + 3]);
        let overload = Options::parse(&[&bytes[FIXED + 4..]])
            .byte(code::OVERLOAD)
            .unwrap_or(0);
        let file_is_options = overload & 1 != 0;
        // Order of RFC 3396 §5: the options field first, then file, then sname.
        let mut parts = vec![&bytes[FIXED + 4..]];
        parts.extend(file_is_options.then_some(&header[FILE]));
        parts.extend((overload & 2 != 0).then_some(&header[SNAME]));
        let file = if file_is_options {
            &[][..]
        } else {
            &header[FILE]
        };
        Ok(Self {
            op,
            hops: header[3],
            xid: u32::from_be_bytes([header[4], header[5], header[6], header[7]]),
            secs: u16::from_be_bytes([header[8], header[9]]),
            broadcast: u16::from_be_bytes([header[10], header[11]]) & BROADCAST_FLAG != 0,
            ciaddr: address(12),
            yiaddr: address(16),
            siaddr: address(20),
            giaddr: address(24),
            mac: Mac([
                header[28], header[29], header[30], header[31], header[32], header[33],
            ]),
            // The last byte always ends the string, because RFC 2131 §2 defines a null-terminated
            // string.
            file: file
                .iter()
                .copied()
                .take(FILE.len() - 1)
                .take_while(|byte| *byte != 0)
                .collect(),
            options: Options::parse(&parts),
        })
    }

    /// Returns the bytes of the message, padded to 300 bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![0; FIXED];
        bytes[..4].copy_from_slice(&[self.op as u8, 1, 6, self.hops]);
        bytes[4..8].copy_from_slice(&self.xid.to_be_bytes());
        bytes[8..10].copy_from_slice(&self.secs.to_be_bytes());
        let flags = if self.broadcast { BROADCAST_FLAG } else { 0 };
        bytes[10..12].copy_from_slice(&flags.to_be_bytes());
        for (at, address) in [
            (12, self.ciaddr),
            (16, self.yiaddr),
            (20, self.siaddr),
            (24, self.giaddr),
        ] {
            bytes[at..at + 4].copy_from_slice(&address.octets());
        }
        bytes[28..34].copy_from_slice(&self.mac.0);
        let name = &self.file[..self.file.len().min(FILE.len() - 1)];
        bytes[FILE.start..FILE.start + name.len()].copy_from_slice(name);
        bytes.extend_from_slice(&MAGIC_COOKIE);
        self.options.encode(&mut bytes);
        bytes.resize(bytes.len().max(MIN_PACKET), 0);
        bytes
    }

    /// Returns the message type, or `None` for plain BOOTP.
    pub fn kind(&self) -> Option<Kind> {
        self.options
            .byte(code::MESSAGE_TYPE)
            .and_then(Kind::from_byte)
    }
}

/// Options by code. The parts of a split option are joined (RFC 3396).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options(BTreeMap<u8, Vec<u8>>);

impl Options {
    fn parse(parts: &[&[u8]]) -> Self {
        let mut options = Self::default();
        for part in parts {
            let mut rest = *part;
            while let [code, tail @ ..] = rest {
                rest = match (*code, tail) {
                    (0, _) => tail,
                    (255, _) | (_, []) => break,
                    (code, [length, value @ ..]) => {
                        let Some((value, after)) = value.split_at_checked(usize::from(*length))
                        else {
                            break;
                        };
                        options.0.entry(code).or_default().extend_from_slice(value);
                        after
                    }
                };
            }
        }
        options
    }

    /// Appends the options. The message type is first and the relay information last (RFC 3046
    /// §2.2), as expected by old clients and relays.
    fn encode(&self, bytes: &mut Vec<u8>) {
        let rank = |code: u8| match code {
            code::MESSAGE_TYPE => 0,
            code::RELAY_AGENT => 2,
            _ => 1,
        };
        let mut codes: Vec<u8> = self.0.keys().copied().collect();
        codes.sort_by_key(|code| rank(*code));
        for code in codes {
            let value = &self.0[&code];
            let pieces = if value.is_empty() {
                vec![&[][..]]
            } else {
                value.chunks(255).collect()
            };
            for piece in pieces {
                bytes.push(code);
                bytes.push(u8::try_from(piece.len()).expect("a piece has at most 255 bytes"));
                bytes.extend_from_slice(piece);
            }
        }
        bytes.push(255);
    }

    /// Sets an option. Codes 0 and 255 are ignored, because 0 is padding and 255 the end of the
    /// list.
    pub fn set(&mut self, code: u8, value: impl Into<Vec<u8>>) {
        if !matches!(code, 0 | 255) {
            self.0.insert(code, value.into());
        }
    }

    /// Returns the raw value of an option.
    pub fn get(&self, code: u8) -> Option<&[u8]> {
        self.0.get(&code).map(Vec::as_slice)
    }

    /// Returns a value of a single byte, or `None` for any other length.
    pub fn byte(&self, code: u8) -> Option<u8> {
        match self.get(code) {
            Some([byte]) => Some(*byte),
            _ => None,
        }
    }

    /// Returns an address, or `None` for a length other than four bytes.
    pub fn address(&self, code: u8) -> Option<Ipv4Addr> {
        let bytes: [u8; 4] = self.get(code)?.try_into().ok()?;
        Some(bytes.into())
    }

    /// Returns every 16-bit value of a list, such as the client architectures (RFC 4578 §2.1). An
    /// odd last byte is skipped.
    pub fn numbers(&self, code: u8) -> impl Iterator<Item = u16> {
        self.get(code)
            .unwrap_or_default()
            .chunks_exact(2)
            .map(|pair| u16::from_be_bytes([pair[0], pair[1]]))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    pub(super) fn discover() -> Message {
        let mut options = Options::default();
        options.set(code::MESSAGE_TYPE, [Kind::Discover as u8]);
        options.set(code::ARCHITECTURE, [0, 7, 0, 9]);
        Message {
            op: Op::FromClient,
            hops: 0,
            xid: 0x1234_5678,
            secs: 4,
            broadcast: true,
            ciaddr: Ipv4Addr::UNSPECIFIED,
            yiaddr: Ipv4Addr::UNSPECIFIED,
            siaddr: Ipv4Addr::UNSPECIFIED,
            giaddr: Ipv4Addr::UNSPECIFIED,
            mac: Mac([0x52, 0x54, 0, 0, 0, 1]),
            file: Vec::new(),
            options,
        }
    }

    #[test]
    fn a_message_is_padded_and_reads_back() {
        let message = Message {
            file: b"snponly.efi".to_vec(),
            ..discover()
        };
        let bytes = message.encode();
        assert_eq!(bytes.len(), 300);
        assert_eq!(Message::parse(&bytes), Ok(message));
    }

    #[test]
    fn an_option_longer_than_255_bytes_is_split_and_joined_again() {
        let mut message = discover();
        message.options.set(code::BOOT_FILE, vec![b'x'; 600]);
        let read = Message::parse(&message.encode()).unwrap();
        assert_eq!(
            read.options.get(code::BOOT_FILE).map(<[u8]>::len),
            Some(600)
        );
    }

    #[test]
    fn junk_in_one_option_hides_no_other() {
        let mut message = discover();
        message.options.set(code::HOST_NAME, [0xff, 0xfe, 0x00]);
        message.options.set(80, [1, 2, 3]);
        let read = Message::parse(&message.encode()).unwrap();
        assert_eq!(
            read.options.numbers(code::ARCHITECTURE).collect::<Vec<_>>(),
            [7, 9]
        );
    }

    #[test]
    fn an_option_that_overruns_the_packet_loses_none_before_it() {
        let mut bytes = discover().encode();
        let end = bytes
            .iter()
            .skip(FIXED + 4)
            .position(|byte| *byte == 255)
            .unwrap()
            + FIXED
            + 4;
        bytes.truncate(end);
        bytes.extend_from_slice(&[code::USER_CLASS, 200, b'i']);
        assert_eq!(Message::parse(&bytes).unwrap().kind(), Some(Kind::Discover));
    }

    #[test]
    fn options_may_continue_in_the_file_field() {
        let mut message = discover();
        message.options.set(code::OVERLOAD, [1]);
        let mut bytes = message.encode();
        bytes[FILE.start..FILE.start + 6].copy_from_slice(&[
            code::USER_CLASS,
            4,
            b'i',
            b'P',
            b'X',
            b'E',
        ]);
        let read = Message::parse(&bytes).unwrap();
        assert_eq!(
            (read.options.get(code::USER_CLASS), read.file.len()),
            (Some(b"iPXE".as_slice()), 0)
        );
    }

    #[test]
    fn a_file_name_that_fills_its_field_still_ends() {
        let mut bytes = discover().encode();
        bytes[FILE].fill(b'x');
        let read = Message::parse(&bytes).unwrap();
        assert_eq!(read.file.len(), 127);
        assert_eq!(Message::parse(&read.encode()), Ok(read));
    }

    #[test]
    fn what_is_not_dhcp_over_ethernet_is_refused() {
        let mut cookie = discover().encode();
        cookie[FIXED] = 0;
        assert_eq!(Message::parse(&cookie), Err(NotDhcp::NoCookie));
        let mut hardware = discover().encode();
        hardware[1] = 32;
        assert_eq!(Message::parse(&hardware), Err(NotDhcp::Hardware));
        assert_eq!(Message::parse(&[1; 235]), Err(NotDhcp::Short));
    }

    proptest! {
        #[test]
        fn any_bytes_parse_or_are_refused(bytes in proptest::collection::vec(any::<u8>(), 0..1500)) {
            let _ = Message::parse(&bytes);
        }

        #[test]
        fn any_option_bytes_survive_a_second_trip(tail in proptest::collection::vec(any::<u8>(), 0..700)) {
            let mut bytes = discover().encode();
            bytes.truncate(FIXED + 4);
            bytes.extend_from_slice(&tail);
            let once = Message::parse(&bytes).unwrap();
            // Overload splits options over several fields, but `encode` writes a single field.
            prop_assume!(once.options.get(code::OVERLOAD).is_none());
            prop_assert_eq!(Message::parse(&once.encode()), Ok(once));
        }
    }
}
