//! Addresses that the server may call for a person: public addresses, and the networks named in the
//! configuration. All other addresses are refused. A URL written by a person must not make the
//! server reach into networks accessible only to the server.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;

/// IPv4 networks outside the public Internet, by the special-purpose registries (RFC 6890 and the
/// IANA lists).
const REFUSED_V4: [(&str, &str); 16] = [
    ("0.0.0.0/8", "unspecified"),
    ("10.0.0.0/8", "private"),
    ("100.64.0.0/10", "shared by a provider"),
    ("127.0.0.0/8", "loopback"),
    (
        "169.254.0.0/16",
        "link-local, where clouds keep their metadata",
    ),
    ("172.16.0.0/12", "private"),
    ("192.0.0.0/24", "reserved"),
    ("192.0.2.0/24", "documentation"),
    ("192.88.99.0/24", "reserved"),
    ("192.168.0.0/16", "private"),
    ("198.18.0.0/15", "for benchmarks"),
    ("198.51.100.0/24", "documentation"),
    ("203.0.113.0/24", "documentation"),
    ("224.0.0.0/4", "multicast"),
    ("255.255.255.255/32", "broadcast"),
    ("240.0.0.0/4", "reserved"),
];

/// The same for IPv6. Addresses outside [`GLOBAL_V6`] are refused even without an entry here.
const REFUSED_V6: [(&str, &str); 12] = [
    ("::/128", "unspecified"),
    ("::1/128", "loopback"),
    ("::ffff:0:0/96", "IPv4 in disguise"),
    ("64:ff9b::/96", "IPv4 in disguise"),
    ("fe80::/10", "link-local"),
    ("fec0::/10", "site-local"),
    ("fc00::/7", "private"),
    ("ff00::/8", "multicast"),
    ("2001::/23", "reserved"),
    ("2001:db8::/32", "documentation"),
    ("2002::/16", "IPv4 in disguise"),
    ("3fff::/20", "documentation"),
];
const GLOBAL_V6: &str = "2000::/3";

/// The scheme of a URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// The receiver proves its identity.
    Https,
    /// Eavesdroppers on the path can read the traffic. Allowed only into networks named in the
    /// configuration.
    Http,
}

/// A refused address, with the reason.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{address} is not called: it is {why}, and --webhook-allow does not name it")]
pub struct Refused {
    pub address: IpAddr,
    pub why: &'static str,
}

/// Networks allowed besides the public Internet.
#[derive(Clone, Debug, Default)]
pub struct Policy {
    pub allowed: Vec<IpNet>,
}

impl Policy {
    /// Checks whether an address may be called.
    ///
    /// # Errors
    /// [`Refused`].
    pub fn check(&self, address: IpAddr, scheme: Scheme) -> Result<(), Refused> {
        // The kernel connects a mapped IPv6 address to the IPv4 address, so both forms are checked.
        let real = address.to_canonical();
        if self.allowed.iter().any(|network| network.contains(&real)) {
            return Ok(());
        }
        match (refusal(address).or_else(|| refusal(real)), scheme) {
            (Some(why), _) => Err(Refused { address, why }),
            (None, Scheme::Http) => Err(Refused {
                address,
                why: "outside, where http lets others read along",
            }),
            (None, Scheme::Https) => Ok(()),
        }
    }
}

fn refusal(address: IpAddr) -> Option<&'static str> {
    match address {
        IpAddr::V4(address) => REFUSED_V4
            .iter()
            .find(|(network, _)| holds(network, address.into()))
            .map(|(_, why)| *why),
        IpAddr::V6(address) => {
            let known = REFUSED_V6
                .iter()
                .find(|(network, _)| holds(network, address.into()))
                .map(|(_, why)| *why);
            known.or_else(|| (!holds(GLOBAL_V6, address.into())).then_some("not everybody's"))
        }
    }
}

fn holds(network: &str, address: IpAddr) -> bool {
    network
        .parse::<IpNet>()
        .expect("the tables hold networks")
        .contains(&address)
}

/// Returns the address if a URL's host is an address. A name is resolved during the call.
pub fn literal(host: &str) -> Option<IpAddr> {
    let bare = host
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'))
        .unwrap_or(host);
    bare.parse::<Ipv4Addr>()
        .map(IpAddr::V4)
        .or_else(|_| bare.parse::<Ipv6Addr>().map(IpAddr::V6))
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(allowed: &[&str], address: &str, scheme: Scheme) -> Result<(), &'static str> {
        let policy = Policy {
            allowed: allowed
                .iter()
                .map(|network| network.parse().unwrap())
                .collect(),
        };
        policy
            .check(address.parse().unwrap(), scheme)
            .map_err(|refused| refused.why)
    }

    #[test]
    fn everybodys_addresses_are_called_by_https_and_by_nothing_else() {
        for address in [
            "1.1.1.1",
            "93.184.216.34",
            "172.15.255.255",
            "172.32.0.1",
            "100.63.0.1",
            "100.128.0.1",
        ] {
            assert_eq!(check(&[], address, Scheme::Https), Ok(()), "{address}");
            assert!(check(&[], address, Scheme::Http).is_err(), "{address}");
        }
        assert_eq!(check(&[], "2606:4700::1111", Scheme::Https), Ok(()));
    }

    #[test]
    fn each_range_that_is_not_everybodys_is_refused_at_both_ends() {
        for (first, last, why) in [
            ("0.0.0.0", "0.255.255.255", "unspecified"),
            ("10.0.0.0", "10.255.255.255", "private"),
            ("100.64.0.0", "100.127.255.255", "shared by a provider"),
            ("127.0.0.1", "127.255.255.255", "loopback"),
            (
                "169.254.0.0",
                "169.254.169.254",
                "link-local, where clouds keep their metadata",
            ),
            ("172.16.0.0", "172.31.255.255", "private"),
            ("192.0.0.0", "192.0.0.255", "reserved"),
            ("192.0.2.0", "192.0.2.255", "documentation"),
            ("192.88.99.1", "192.88.99.255", "reserved"),
            ("192.168.0.0", "192.168.255.255", "private"),
            ("198.18.0.0", "198.19.255.255", "for benchmarks"),
            ("198.51.100.1", "198.51.100.255", "documentation"),
            ("203.0.113.1", "203.0.113.255", "documentation"),
            ("224.0.0.1", "239.255.255.255", "multicast"),
            ("240.0.0.0", "255.255.255.254", "reserved"),
            ("255.255.255.255", "255.255.255.255", "broadcast"),
            ("::", "::", "unspecified"),
            ("::1", "::1", "loopback"),
            ("::ffff:127.0.0.1", "::ffff:1.1.1.1", "IPv4 in disguise"),
            ("64:ff9b::a9fe:a9fe", "64:ff9b::101:101", "IPv4 in disguise"),
            ("2002:7f00:1::", "2002:ffff::1", "IPv4 in disguise"),
            ("2001::1", "2001:1ff::1", "reserved"),
            ("2001:db8::1", "2001:db8:ffff::1", "documentation"),
            ("3fff::1", "3fff:fff::1", "documentation"),
            ("fc00::1", "fd00:ec2::254", "private"),
            ("fe80::1", "febf::1", "link-local"),
            ("fec0::1", "feff::1", "site-local"),
            ("ff02::1", "ffff::1", "multicast"),
            ("::7f00:1", "1fff::1", "not everybody's"),
            ("4000::1", "64:ff9b:1::1", "not everybody's"),
        ] {
            for address in [first, last] {
                assert_eq!(check(&[], address, Scheme::Https), Err(why), "{address}");
                assert!(check(&[], address, Scheme::Http).is_err(), "{address}");
            }
        }
    }

    #[test]
    fn only_a_network_in_the_configuration_is_called() {
        for scheme in [Scheme::Https, Scheme::Http] {
            assert_eq!(check(&["127.0.0.1/32"], "127.0.0.1", scheme), Ok(()));
            assert_eq!(
                check(&["127.0.0.1/32"], "::ffff:127.0.0.1", scheme),
                Ok(()),
                "it leads to the same"
            );
            assert_eq!(
                check(&["127.0.0.1/32"], "127.0.0.2", scheme),
                Err("loopback")
            );
            assert_eq!(check(&["fd00:1::/64"], "fd00:1::9", scheme), Ok(()));
            assert_eq!(check(&["fd00:1::/64"], "fd00:2::9", scheme), Err("private"));
            assert!(check(&["10.0.0.0/8"], "169.254.169.254", scheme).is_err());
        }
    }

    #[test]
    fn a_host_that_is_an_address_is_seen_as_one_however_it_is_written() {
        for written in [
            "http://127.0.0.1/",
            "http://2130706433/",
            "http://0x7f.1/",
            "http://0177.0.0.1/",
            "http://127.1/",
        ] {
            let url = reqwest::Url::parse(written).unwrap();
            assert_eq!(
                literal(url.host_str().unwrap()),
                Some("127.0.0.1".parse().unwrap()),
                "{written}"
            );
        }
        let url = reqwest::Url::parse("http://[::ffff:7f00:1]/").unwrap();
        assert_eq!(
            literal(url.host_str().unwrap()),
            Some("::ffff:127.0.0.1".parse().unwrap())
        );
        assert_eq!(literal("example.org"), None);
    }
}
