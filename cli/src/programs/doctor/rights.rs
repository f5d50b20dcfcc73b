//! Capabilities of the agent: ports below 1024, and sockets bound to an interface.

use super::Found;

/// Capability numbers (capabilities(7)).
const NEEDED: [(&str, u32); 2] = [("CAP_NET_BIND_SERVICE", 10), ("CAP_NET_RAW", 13)];

pub(super) fn check() -> Vec<Found> {
    let Ok(status) = std::fs::read_to_string("/proc/self/status") else {
        return vec![Found::unknown(
            "/proc/self/status cannot be read",
            "look with `capsh --print`",
        )];
    };
    vec![verdict(&status)]
}

fn verdict(status: &str) -> Found {
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let Some(held) = effective.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok()) else {
        return Found::unknown(
            "the kernel does not report this user's capabilities",
            "look with `capsh --print`",
        );
    };
    let missing: Vec<&str> = NEEDED
        .iter()
        .filter(|(_, bit)| held & (1 << bit) == 0)
        .map(|(name, _)| *name)
        .collect();
    match missing.is_empty() {
        true => Found::ok("this user may open DHCP and TFTP ports"),
        false => Found::warn(
            format!(
                "this user lacks {}, so an agent started by this user cannot answer DHCP and TFTP",
                missing.join(" and ")
            ),
            "run the agent as root, or in its unit: AmbientCapabilities=CAP_NET_BIND_SERVICE CAP_NET_RAW",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Verdict;
    use super::*;

    #[test]
    fn what_is_missing_is_named() {
        assert_eq!(
            verdict("Name: x\nCapEff:\t000001ffffffffff\n").0,
            Verdict::Ok
        );
        let Found(word, said, _) = verdict("CapEff:\t0000000000000400\n");
        assert_eq!(word, Verdict::Warn);
        assert!(
            said.contains("CAP_NET_RAW") && !said.contains("BIND"),
            "{said}"
        );
        assert_eq!(verdict("CapEff: nonsense").0, Verdict::Unknown);
    }
}
