//! The client's address in `Forwarded` (RFC 7239) and `X-Forwarded-For`. Every proxy appends its
//! peer, so only the entries at the right end are written by trusted proxies.

use std::net::{IpAddr, Ipv6Addr, SocketAddrV4};

use http::HeaderMap;

/// Returns the rightmost address of no trusted proxy. `None`: no readable entry, or two headers
/// with different clients. Many proxies write a single header and pass the other through, so a
/// difference means an invented client.
pub(super) fn find_client(
    headers: &HeaderMap,
    is_proxy: impl Fn(IpAddr) -> bool,
) -> Option<IpAddr> {
    let find = |name: &str, parse: fn(&str) -> Option<IpAddr>| {
        headers
            .contains_key(name)
            .then(|| rightmost(headers, name, parse, &is_proxy))
    };
    let standard = find("forwarded", parse_element);
    let usual = find("x-forwarded-for", parse_node);
    match (standard, usual) {
        (Some(one), Some(other)) => one.filter(|client| other == Some(*client)),
        (Some(client), None) | (None, Some(client)) => client,
        (None, None) => None,
    }
}

/// Returns the rightmost address of no proxy. Only proxies: the leftmost address. An unreadable
/// entry ends the search, because the entries to the left are not vouched for.
fn rightmost(
    headers: &HeaderMap,
    name: &str,
    parse: fn(&str) -> Option<IpAddr>,
    is_proxy: impl Fn(IpAddr) -> bool,
) -> Option<IpAddr> {
    let mut last = None;
    for value in headers.get_all(name).iter().rev() {
        for entry in split(value.to_str().ok()?, ',').into_iter().rev() {
            let address = parse(entry.trim())?.to_canonical();
            if !is_proxy(address) {
                return Some(address);
            }
            last = Some(address);
        }
    }
    last
}

/// Reads the `for` of an element of `Forwarded`.
fn parse_element(element: &str) -> Option<IpAddr> {
    let pairs = split(element, ';');
    let mut nodes = pairs.into_iter().filter_map(|pair| {
        let (name, node) = pair.split_once('=')?;
        name.trim().eq_ignore_ascii_case("for").then_some(node)
    });
    let node = nodes.next()?.trim();
    if nodes.next().is_some() {
        return None;
    }
    let quoted = node
        .strip_prefix('"')
        .and_then(|rest| rest.strip_suffix('"'));
    parse_node(quoted.unwrap_or(node))
}

/// Reads an address with or without a port.
fn parse_node(node: &str) -> Option<IpAddr> {
    if let Some(rest) = node.strip_prefix('[') {
        let (address, port) = rest.split_once(']')?;
        let is_port = |port: &str| port.parse::<u16>().is_ok();
        return (port.is_empty() || port.strip_prefix(':').is_some_and(is_port))
            .then(|| address.parse::<Ipv6Addr>().ok().map(IpAddr::V6))
            .flatten();
    }
    let address = node.parse::<IpAddr>().ok();
    address.or_else(|| Some(IpAddr::V4(*node.parse::<SocketAddrV4>().ok()?.ip())))
}

/// Splits a text at separators outside of quotes.
fn split(text: &str, separator: char) -> Vec<&str> {
    let mut quoted = false;
    text.split(|letter: char| {
        quoted ^= letter == '"';
        letter == separator && !quoted
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn client(sent: &[(&'static str, &'static str)]) -> Option<String> {
        let mut headers = HeaderMap::new();
        for &(name, value) in sent {
            headers.append(name, HeaderValue::from_static(value));
        }
        let is_proxy = |address: IpAddr| address.to_string().starts_with("10.");
        find_client(&headers, is_proxy).map(|address| address.to_string())
    }

    #[test]
    fn the_rightmost_untrusted_address_is_the_client() {
        for (value, expected) in [
            ("192.0.2.7", "192.0.2.7"),
            ("203.0.113.9, 192.0.2.7", "192.0.2.7"),
            ("203.0.113.9, 192.0.2.7, 10.0.0.2", "192.0.2.7"),
            ("192.0.2.7:4711", "192.0.2.7"),
            ("2001:db8::7", "2001:db8::7"),
            ("[2001:db8::7]:4711", "2001:db8::7"),
            ("::ffff:192.0.2.7", "192.0.2.7"),
            ("10.0.0.3, 10.0.0.2", "10.0.0.3"),
        ] {
            let found = client(&[("x-forwarded-for", value)]);
            assert_eq!(found.as_deref(), Some(expected), "{value}");
        }
        for (value, expected) in [
            ("for=192.0.2.7;proto=https", "192.0.2.7"),
            ("for=203.0.113.9, For=\"192.0.2.7:80\"", "192.0.2.7"),
            ("proto=https;for=\"[2001:db8::7]:80\"", "2001:db8::7"),
        ] {
            let found = client(&[("forwarded", value)]);
            assert_eq!(found.as_deref(), Some(expected), "{value}");
        }
        let lines = [
            ("x-forwarded-for", "203.0.113.9"),
            ("x-forwarded-for", "192.0.2.7"),
        ];
        assert_eq!(client(&lines).as_deref(), Some("192.0.2.7"));
    }

    #[test]
    fn an_unreadable_or_contradicted_entry_names_no_client() {
        for value in [
            "",
            "unknown",
            "192.0.2.7, unknown",
            "192.0.2.7, ",
            "[2001:db8::7",
            "[2001:db8::7]x",
            "192.0.2.7:70000",
        ] {
            assert_eq!(client(&[("x-forwarded-for", value)]), None, "{value}");
        }
        for value in ["for=_hidden", "proto=https", "for=192.0.2.7;for=192.0.2.8"] {
            assert_eq!(client(&[("forwarded", value)]), None, "{value}");
        }
        let both = |standard, usual| client(&[("forwarded", standard), ("x-forwarded-for", usual)]);
        assert_eq!(both("for=203.0.113.9", "192.0.2.7"), None);
        assert_eq!(
            both("for=192.0.2.7", "192.0.2.7").as_deref(),
            Some("192.0.2.7")
        );
        assert_eq!(client(&[]), None);
    }
}
