//! Addresses of BMCs and consoles. An agent sends a password to a BMC, and shows the text of a
//! console. A site therefore names the networks of its BMCs and of its consoles, and an address
//! outside of these networks is refused: at the write, and before the agent connects.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

/// The largest number of networks in a list.
pub const NETWORKS_MAX: usize = 64;

/// Networks that never have a BMC or a console, with the word for each.
const SPECIAL: [(IpNet, &str); 10] = [
    (v4([0, 0, 0, 0], 8), "unspecified"),
    (v4([127, 0, 0, 0], 8), "loopback"),
    (v4([169, 254, 0, 0], 16), "link-local"),
    (v4([224, 0, 0, 0], 4), "multicast"),
    (v4([255, 255, 255, 255], 32), "broadcast"),
    (v6([0; 8], 128), "unspecified"),
    (v6([0, 0, 0, 0, 0, 0, 0, 1], 128), "loopback"),
    (
        v6([0, 0, 0, 0, 0, 0xffff, 0, 0], 96),
        "IPv4 in the form of IPv6",
    ),
    (v6([0xfe80, 0, 0, 0, 0, 0, 0, 0], 10), "link-local"),
    (v6([0xff00, 0, 0, 0, 0, 0, 0, 0], 8), "multicast"),
];

const fn v4(octets: [u8; 4], prefix: u8) -> IpNet {
    let [a, b, c, d] = octets;
    IpNet::V4(Ipv4Net::new_assert(Ipv4Addr::new(a, b, c, d), prefix))
}

const fn v6(segments: [u16; 8], prefix: u8) -> IpNet {
    let [a, b, c, d, e, f, g, h] = segments;
    IpNet::V6(Ipv6Net::new_assert(
        Ipv6Addr::new(a, b, c, d, e, f, g, h),
        prefix,
    ))
}

/// Returns whether two networks have an address in common.
pub fn overlap(one: IpNet, other: IpNet) -> bool {
    one.contains(&other) || other.contains(&one)
}

/// Returns the word for a special address or network, and `None` for any other.
pub fn find_special(network: IpNet) -> Option<&'static str> {
    let known = SPECIAL
        .iter()
        .find(|(special, _)| overlap(*special, network));
    known.map(|(_, word)| *word)
}

/// Returns whether an address is inside of one of the networks.
pub fn is_inside(networks: &[IpNet], address: IpAddr) -> bool {
    networks.iter().any(|network| network.contains(&address))
}

/// Returns whether an agent may connect to an address. Without declared networks, every address
/// but a special one is allowed: a site of the version before declares no networks.
pub fn may_connect(networks: &[IpNet], address: IpAddr) -> bool {
    match networks.is_empty() {
        true => find_special(IpNet::from(address)).is_none(),
        false => is_inside(networks, address),
    }
}

/// Returns the networks that are in both lists. An empty list declares no limit. `None`: neither
/// list declares a limit. An empty result: the lists have no network in common.
pub fn intersect(one: &[IpNet], other: &[IpNet]) -> Option<Vec<IpNet>> {
    match (one.is_empty(), other.is_empty()) {
        (true, true) => return None,
        (true, false) => return Some(other.to_vec()),
        (false, true) => return Some(one.to_vec()),
        (false, false) => {}
    }
    let inner = |a: IpNet, b: IpNet| match (a.contains(&b), b.contains(&a)) {
        (true, _) => Some(b),
        (false, true) => Some(a),
        (false, false) => None,
    };
    let pairs = one
        .iter()
        .flat_map(|a| other.iter().filter_map(move |b| inner(*a, *b)));
    Some(IpNet::aggregate(&pairs.collect::<Vec<IpNet>>()))
}

/// Returns the networks as text: `10.78.0.0/24, fd00::/64`.
pub fn list_networks(networks: &[IpNet]) -> String {
    let listed: Vec<String> = networks.iter().map(IpNet::to_string).collect();
    listed.join(", ")
}

/// Checks a list of networks: the place in the list with a code and the reason, or `None` as the
/// place for a fault of the whole list.
pub fn check_networks(networks: &[IpNet]) -> Vec<NetworkFault> {
    if networks.len() > NETWORKS_MAX {
        return vec![NetworkFault {
            place: None,
            code: "too_many",
            why: format!("At most {NETWORKS_MAX} networks."),
        }];
    }
    let check = |(place, network): (usize, &IpNet)| {
        let place = Some(place);
        if network.addr() != network.network() {
            return Some(NetworkFault {
                place,
                code: "host_bits",
                why: format!("The network's own address is {}.", network.trunc()),
            });
        }
        find_special(*network).map(|word| NetworkFault {
            place,
            code: "special_network",
            why: format!("{network} has {word} addresses; name a network without these."),
        })
    };
    networks.iter().enumerate().filter_map(check).collect()
}

/// A fault of a list of networks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NetworkFault {
    /// The place in the list. Absent for a fault of the whole list.
    pub place: Option<usize>,
    pub code: &'static str,
    /// The reason, for a person.
    pub why: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn networks(texts: &[&str]) -> Vec<IpNet> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn an_address_is_allowed_inside_and_refused_outside_of_the_networks() {
        let declared = networks(&["10.78.0.0/24", "fd00:78::/64"]);
        for inside in ["10.78.0.1", "10.78.0.255", "fd00:78::1"] {
            assert!(may_connect(&declared, address(inside)), "{inside}");
        }
        for outside in ["10.78.1.1", "127.0.0.1", "fd00:79::1", "::ffff:10.78.0.1"] {
            assert!(!may_connect(&declared, address(outside)), "{outside}");
        }
    }

    #[test]
    fn without_networks_only_special_addresses_are_refused() {
        assert!(may_connect(&[], address("10.78.0.1")) && may_connect(&[], address("fd00::1")));
        for special in [
            "0.0.0.0",
            "127.0.0.1",
            "127.255.255.254",
            "169.254.169.254",
            "224.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::ffff:127.0.0.1",
            "fe80::1",
            "ff02::1",
        ] {
            assert!(!may_connect(&[], address(special)), "{special}");
        }
    }

    #[test]
    fn a_list_with_special_networks_or_host_bits_is_refused() {
        assert!(check_networks(&networks(&["10.78.0.0/24", "fd00::/8"])).is_empty());
        for (text, code) in [
            ("127.0.0.0/8", "special_network"),
            ("127.4.0.0/16", "special_network"),
            ("0.0.0.0/0", "special_network"),
            ("::/0", "special_network"),
            ("169.254.1.0/24", "special_network"),
            ("fe80::/64", "special_network"),
            ("::ffff:10.78.0.0/120", "special_network"),
            ("10.78.0.5/24", "host_bits"),
        ] {
            let faults = check_networks(&networks(&["10.79.0.0/24", text]));
            let found: Vec<_> = faults
                .iter()
                .map(|fault| (fault.place, fault.code))
                .collect();
            assert_eq!(found, [(Some(1), code)], "{text}");
        }
        let many: Vec<IpNet> = vec!["10.78.0.0/24".parse().unwrap(); NETWORKS_MAX + 1];
        assert_eq!(check_networks(&many)[0].code, "too_many");
        assert!(check_networks(&many[1..]).is_empty());
    }

    #[test]
    fn two_lists_have_their_common_networks() {
        let both = |one: &[&str], other: &[&str]| intersect(&networks(one), &networks(other));
        assert_eq!(
            both(
                &["10.78.0.0/16", "10.80.0.0/24"],
                &["10.78.1.0/24", "10.0.0.0/8"]
            ),
            Some(networks(&["10.78.0.0/16", "10.80.0.0/24"]))
        );
        let inner = Some(networks(&["10.78.1.0/24"]));
        assert_eq!(both(&["10.78.0.0/16"], &["10.78.1.0/24"]), inner);
        assert_eq!(both(&[], &["10.78.1.0/24"]), inner);
        assert_eq!(both(&["10.78.1.0/24"], &[]), inner);
        assert_eq!(both(&[], &[]), None);
        let none_in_common = both(&["10.78.0.0/16"], &["10.79.0.0/16"]);
        assert_eq!(none_in_common, Some(Vec::new()));
        assert_eq!(
            list_networks(&networks(&["10.78.0.0/24", "fd00::/64"])),
            "10.78.0.0/24, fd00::/64"
        );
    }
}
