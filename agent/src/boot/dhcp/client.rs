//! Detects the kind of boot client from a DHCP message (RFC 4578, UEFI 2.10 §24.7, iPXE).

use uuid::Uuid;

use super::wire::{Message, code};

/// The firmware of the client, used to select a loader. Only x86-64 is supported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Firmware {
    Bios,
    Uefi,
}

/// The kind of client in a DHCP message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Client {
    /// An operating system, or firmware without a request for network boot.
    Os,
    /// A PXE ROM.
    Pxe(Firmware),
    /// UEFI HTTP boot.
    UefiHttp,
    /// An iPXE not proven to be the iPXE built by Muster.
    Ipxe(Firmware),
    /// The iPXE built by Muster, after its first script.
    Muster(Firmware),
    /// A network boot client of another architecture, with the IANA number of the architecture.
    Foreign(u16),
}

impl Client {
    /// Returns the kind of client from the vendor class, the user class and the architectures. The
    /// first supported architecture decides.
    pub fn of(message: &Message) -> Self {
        let vendor_class = message.options.get(code::VENDOR_CLASS).unwrap_or_default();
        let is_http = vendor_class.starts_with(b"HTTPClient");
        let user = |name: &[u8]| {
            message
                .options
                .get(code::USER_CLASS)
                .is_some_and(|value| has_class(value, name))
        };
        let is_ipxe = user(b"iPXE") || user(b"muster");
        if !(is_http || is_ipxe || vendor_class.starts_with(b"PXEClient")) {
            return Self::Os;
        }
        let mut numbers: Vec<u16> = message.options.numbers(code::ARCHITECTURE).collect();
        numbers.extend(architecture_in_class(vendor_class));
        let Some(known) = numbers.iter().find_map(|number| architecture(*number)) else {
            return numbers
                .first()
                .map_or(Self::Os, |number| Self::Foreign(*number));
        };
        match known {
            Architecture::Http if is_http => Self::UefiHttp,
            Architecture::Http => Self::Os,
            Architecture::Pxe(firmware) if user(b"muster") => Self::Muster(firmware),
            Architecture::Pxe(firmware) if is_ipxe => Self::Ipxe(firmware),
            Architecture::Pxe(firmware) => Self::Pxe(firmware),
        }
    }

    /// Returns the name of the client for the timeline.
    pub fn name(self) -> &'static str {
        match self {
            Self::Os => "operating system",
            Self::Pxe(Firmware::Bios) => "BIOS PXE",
            Self::Pxe(Firmware::Uefi) => "UEFI PXE",
            Self::UefiHttp => "UEFI HTTP boot",
            Self::Ipxe(Firmware::Bios) => "iPXE on BIOS",
            Self::Ipxe(Firmware::Uefi) => "iPXE on UEFI",
            Self::Muster(Firmware::Bios) => "our iPXE on BIOS",
            Self::Muster(Firmware::Uefi) => "our iPXE on UEFI",
            Self::Foreign(_) => "a boot client of another architecture",
        }
    }
}

enum Architecture {
    Pxe(Firmware),
    Http,
}

/// Maps the IANA "Processor Architecture Types": 0 is BIOS. 7 is sent by x86-64 firmware since the
/// erratum of RFC 4578, and 9 is the number in the RFC itself. 16 is UEFI HTTP boot.
fn architecture(number: u16) -> Option<Architecture> {
    match number {
        0 => Some(Architecture::Pxe(Firmware::Bios)),
        7 | 9 => Some(Architecture::Pxe(Firmware::Uefi)),
        16 => Some(Architecture::Http),
        _ => None,
    }
}

/// Parses the number in `PXEClient:Arch:00007:…`, for clients without option 93.
fn architecture_in_class(vendor_class: &[u8]) -> Option<u16> {
    let text = std::str::from_utf8(vendor_class).ok()?;
    text.split(':').nth(2)?.parse().ok()
}

/// Returns whether the option names the user class, either as plain text (iPXE) or in the
/// length-prefixed list of RFC 3004.
fn has_class(value: &[u8], name: &[u8]) -> bool {
    let mut rest = value;
    let listed = std::iter::from_fn(|| {
        let (length, tail) = rest.split_first()?;
        let (class, after) = tail.split_at_checked(usize::from(*length))?;
        rest = after;
        Some(class)
    });
    value == name || listed.take(16).any(|class| class == name)
}

/// Returns the SMBIOS UUID from option 97. The value is type 0 and 16 bytes. The first three UUID
/// fields are little-endian, as in SMBIOS 2.6.
pub fn machine_uuid(message: &Message) -> Option<String> {
    match message.options.get(code::MACHINE_ID)? {
        [0, uuid @ ..] => Some(Uuid::from_bytes_le(uuid.try_into().ok()?).to_string()),
        _ => None,
    }
}
