//! Encodes and decodes TFTP packets (RFC 1350, 2347, 2348, 2349, 7440). Packets of firmware can be
//! cut, odd or hostile. The parser never panics, and an unusable option is treated as absent.

/// The requested file and the options of the request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// File name, as sent by the client.
    pub name: String,
    /// `blksize`: bytes per block, at least 8.
    pub block_size: Option<u16>,
    /// `windowsize`: blocks in flight, at least 1.
    pub window: Option<u16>,
    /// `tsize`: the client asks for the file size.
    pub wants_size: bool,
}

/// A received packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Packet {
    Read(Request),
    Write,
    Ack(u16),
    /// The client ended the transfer, after reading the size or after an error.
    Error,
}

/// The reason for a refused request, sent as code and text of an ERROR packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    NotFound,
    ReadOnly,
    /// Only octet mode is supported, because `netascii` would change the bytes of a loader.
    OctetOnly,
    Busy,
}

/// Parses a packet. `Ok(None)` means a packet without an answer.
///
/// # Errors
/// A valid request that cannot be granted.
pub fn parse(bytes: &[u8]) -> Result<Option<Packet>, Refusal> {
    let Some(([0, operation], rest)) = bytes.split_first_chunk() else {
        return Ok(None);
    };
    match (operation, rest) {
        (1, request) => read_request(request),
        (2, _) => Ok(Some(Packet::Write)),
        (4, [high, low, ..]) => Ok(Some(Packet::Ack(u16::from_be_bytes([*high, *low])))),
        (5, _) => Ok(Some(Packet::Error)),
        _ => Ok(None),
    }
}

fn read_request(bytes: &[u8]) -> Result<Option<Packet>, Refusal> {
    // Every word ends with a zero byte. Bytes after the last zero byte are dropped.
    let mut words = bytes
        .split_inclusive(|byte| *byte == 0)
        .filter_map(|word| word.strip_suffix(&[0]));
    let (Some(name), Some(mode)) = (words.next(), words.next()) else {
        return Ok(None);
    };
    if !mode.eq_ignore_ascii_case(b"octet") {
        return Err(Refusal::OctetOnly);
    }
    let name = String::from_utf8(name.to_vec()).map_err(|_| Refusal::NotFound)?;
    let mut request = Request {
        name,
        block_size: None,
        window: None,
        wants_size: false,
    };
    while let (Some(option), Some(value)) = (words.next(), words.next()) {
        let number: Option<u16> = std::str::from_utf8(value)
            .ok()
            .and_then(|text| text.parse().ok());
        match option.to_ascii_lowercase().as_slice() {
            b"blksize" => request.block_size = number.filter(|size| (8..=65_464).contains(size)),
            b"windowsize" => request.window = number.filter(|blocks| *blocks > 0),
            b"tsize" => request.wants_size = true,
            _ => {}
        }
    }
    Ok(Some(Packet::Read(request)))
}

/// Returns the header of a DATA packet.
pub fn data_header(block: u16) -> [u8; 4] {
    let [high, low] = block.to_be_bytes();
    [0, 3, high, low]
}

/// Returns an OACK with the granted options. Returns `None` for a request without options, so that
/// the first block is the answer.
pub fn granted(block_size: Option<u16>, window: Option<u16>, size: Option<u64>) -> Option<Vec<u8>> {
    let options = [
        ("blksize", block_size.map(|value| value.to_string())),
        ("windowsize", window.map(|value| value.to_string())),
        ("tsize", size.map(|value| value.to_string())),
    ];
    let mut packet = vec![0, 6];
    for (name, value) in options
        .iter()
        .filter_map(|(name, value)| Some((name, value.as_ref()?)))
    {
        packet.extend(name.bytes().chain([0]).chain(value.bytes()).chain([0]));
    }
    (packet.len() > 2).then_some(packet)
}

/// Returns an ERROR packet.
pub fn refused(why: Refusal) -> Vec<u8> {
    let (code, text): (u8, &str) = match why {
        Refusal::NotFound => (1, "no such file"),
        Refusal::ReadOnly => (2, "nothing can be written here"),
        Refusal::OctetOnly => (4, "octet mode only"),
        Refusal::Busy => (0, "busy, ask again"),
    };
    [&[0, 5, 0, code], text.as_bytes(), &[0]].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(bytes: &[u8]) -> Request {
        match parse(&[b"\0\x01", bytes].concat()) {
            Ok(Some(Packet::Read(request))) => request,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn options_are_read_in_any_case_and_order_and_odd_ones_are_left_out() {
        let asked =
            request(b"a\0OCTET\0tsize\x000\0BlkSize\x001468\0windowsize\x004\0multicast\0\0");
        let expected = Request {
            name: "a".into(),
            block_size: Some(1468),
            window: Some(4),
            wants_size: true,
        };
        assert_eq!(asked, expected);
        let odd = request(b"a\0octet\0blksize\x007\0windowsize\x000\0timeout\0x\0tsize");
        assert_eq!(
            odd,
            Request {
                name: "a".into(),
                block_size: None,
                window: None,
                wants_size: false
            }
        );
    }

    #[test]
    fn what_is_no_request_is_nothing_and_what_cannot_be_granted_says_so() {
        for nothing in [
            b"".as_slice(),
            b"\0",
            b"\0\x01",
            b"\0\x01name",
            b"\0\x01name\0octet",
            b"\0\x04\x01",
            b"\x01\x01a\0octet\0",
        ] {
            assert_eq!(parse(nothing), Ok(None), "{nothing:?}");
        }
        assert_eq!(parse(b"\0\x01a\0netascii\0"), Err(Refusal::OctetOnly));
        assert_eq!(parse(b"\0\x01\xff\0octet\0"), Err(Refusal::NotFound));
        assert_eq!(parse(b"\0\x04\x01\x02"), Ok(Some(Packet::Ack(0x0102))));
    }

    #[test]
    fn only_what_was_asked_for_is_granted() {
        assert_eq!(granted(None, None, None), None);
        assert_eq!(
            granted(Some(512), None, Some(7)).as_deref(),
            Some(b"\0\x06blksize\x00512\0tsize\x007\0".as_slice())
        );
    }
}
