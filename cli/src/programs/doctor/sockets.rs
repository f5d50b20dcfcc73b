//! Owners of ports, read from `/proc/net`. No port is bound for the check.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::unix::fs::MetadataExt as _;

/// An open port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Open {
    address: IpAddr,
    pub(super) port: u16,
    inode: u64,
}

/// The protocol of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Protocol {
    Tcp,
    Udp,
}

/// Returns all open ports; `None` if the kernel gives no list.
pub(super) fn open(protocol: Protocol) -> Option<Vec<Open>> {
    let names = match protocol {
        Protocol::Tcp => ["tcp", "tcp6"],
        Protocol::Udp => ["udp", "udp6"],
    };
    let mut found = Vec::new();
    for (at, name) in names.into_iter().enumerate() {
        match std::fs::read_to_string(format!("/proc/net/{name}")) {
            Ok(text) => found.extend(
                text.lines()
                    .skip(1)
                    .filter_map(|line| parse(line, protocol)),
            ),
            // The file is missing on a host without IPv6.
            Err(_) if at == 1 => {}
            Err(_) => return None,
        }
    }
    Some(found)
}

/// A line of `/proc/net/tcp` (proc(5)): `sl local remote state … inode`, addresses in the byte order of the machine.
fn parse(line: &str, protocol: Protocol) -> Option<Open> {
    const LISTEN: &str = "0A";
    let fields: Vec<&str> = line.split_whitespace().collect();
    let (local, state, inode) = (fields.get(1)?, fields.get(3)?, fields.get(9)?);
    if protocol == Protocol::Tcp && *state != LISTEN {
        return None;
    }
    let (address, port) = local.split_once(':')?;
    let word = |at: usize| {
        u32::from_str_radix(address.get(at..at + 8)?, 16)
            .ok()
            .map(u32::to_ne_bytes)
    };
    let address = match address.len() {
        8 => IpAddr::V4(Ipv4Addr::from(word(0)?)),
        32 => {
            let mut bytes = [0; 16];
            for (at, part) in bytes.chunks_exact_mut(4).enumerate() {
                part.copy_from_slice(&word(at * 8)?);
            }
            IpAddr::V6(Ipv6Addr::from(bytes))
        }
        _ => return None,
    };
    Some(Open {
        address,
        port: u16::from_str_radix(port, 16).ok()?,
        inode: inode.parse().ok()?,
    })
}

impl Open {
    /// Returns whether another program can bind this address and port at the same time.
    pub(super) fn is_in_the_way_of(&self, address: IpAddr, port: u16) -> bool {
        self.port == port
            && (self.address == address
                || self.address.is_unspecified()
                || address.is_unspecified())
    }

    /// Returns the owner: name and process id. Only root sees processes of other users.
    pub(super) fn owner(&self) -> Option<(String, u32)> {
        for entry in std::fs::read_dir("/proc").ok()?.flatten() {
            let Some(pid) = entry
                .file_name()
                .to_str()
                .and_then(|name| name.parse::<u32>().ok())
            else {
                continue;
            };
            let Ok(files) = std::fs::read_dir(entry.path().join("fd")) else {
                continue;
            };
            // The link of a socket's descriptor contains the inode.
            let has = |file: std::fs::DirEntry| {
                std::fs::metadata(file.path()).is_ok_and(|data| data.ino() == self.inode)
            };
            if files.flatten().any(has) {
                let name = std::fs::read_to_string(entry.path().join("comm")).unwrap_or_default();
                return Some((name.trim().to_owned(), pid));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_the_kernel_is_read() {
        let line = "   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 12345 1 0000";
        let open = parse(line, Protocol::Tcp).unwrap();
        assert_eq!(
            open,
            Open {
                address: Ipv4Addr::LOCALHOST.into(),
                port: 8080,
                inode: 12345
            }
        );
        assert!(open.is_in_the_way_of(Ipv4Addr::UNSPECIFIED.into(), 8080));
        assert!(!open.is_in_the_way_of("10.0.0.1".parse().unwrap(), 8080));
        assert!(!open.is_in_the_way_of(Ipv4Addr::LOCALHOST.into(), 8081));
        assert_eq!(parse(&line.replace(" 0A ", " 01 "), Protocol::Tcp), None);
        for broken in ["", "a b c d e f g h i j", "0: 0100:1F90 0 0A 0 0 0 0 0 12"] {
            assert_eq!(parse(broken, Protocol::Tcp), None, "{broken}");
        }
    }
}
