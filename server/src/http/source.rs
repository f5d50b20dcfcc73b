//! The source of a connection or a request, as counted by the limits.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};

/// The host part of an IPv6 address.
const HOST_BITS: u128 = u64::MAX as u128;

/// One source: an IPv4 address, or the /64 network of an IPv6 address. One subscriber usually has a
/// whole /64, so all its addresses share a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Source(IpAddr);

impl Source {
    /// The source of a peer's address. An IPv4 address in IPv6 notation is the IPv4 address.
    pub fn of(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V6(address) => Self(Ipv6Addr::from_bits(address.to_bits() & !HOST_BITS).into()),
            address @ IpAddr::V4(_) => Self(address),
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            IpAddr::V4(address) => write!(f, "{address}"),
            IpAddr::V6(network) => write!(f, "{network}/64"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_one_ipv6_network_are_one_source() {
        let source = |text: &str| Source::of(text.parse().unwrap());
        assert_eq!(source("2001:db8:1:2::1"), source("2001:db8:1:2:ffff::9"));
        assert_ne!(source("2001:db8:1:2::1"), source("2001:db8:1:3::1"));
        assert_eq!(source("::ffff:192.0.2.7"), source("192.0.2.7"));
        assert_ne!(source("192.0.2.7"), source("192.0.2.8"));
        assert_eq!(source("2001:db8:1:2::1").to_string(), "2001:db8:1:2::/64");
        assert_eq!(source("::ffff:192.0.2.7").to_string(), "192.0.2.7");
    }
}
