//! Which orders an agent can read. It says so with each call for jobs, and is given no other: an agent of the version before goes on with all that it knows,
//! and the rest waits for one that can.

/// Header of a call for jobs: the kinds of order that the agent can read, separated by commas. A server that does not know it is of the version
/// before, and knows no kind that the agent does not.
pub const ORDERS: &str = "muster-orders";

/// The kinds of order that this build reads: those of [`JobSpec`](super::agent::JobSpec). New ones come last.
pub const KINDS: &[&str] = &[
    "boot_live",
    "inventory",
    "power_off",
    "write_image",
    "boot_disk",
    "converge",
    "reboot",
    "gates",
    "slurm_admit",
    "slurm_drain",
    "slurm_remove",
    "wipe",
    "adopt",
    "power_on",
    "power_cycle",
    "rotate_bmc",
    "pair",
    "firmware",
];

/// What an agent reads that does not say: it is of the last version that had no such header, which ended at `power_cycle`.
pub const UNSAID: &[&str] = KINDS.split_at(15).0;

/// Whether an agent that sent this header, or none, can read a kind of order.
pub fn reads(header: Option<&str>, kind: &str) -> bool {
    match header {
        Some(said) => said.split(',').any(|one| one.trim() == kind),
        None => UNSAID.contains(&kind),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::agent::JobSpec;

    #[test]
    fn every_kind_of_order_is_in_the_list() {
        // serde names them all where it meets one that there is not.
        let error = serde_json::from_str::<JobSpec>(r#"{"kind":"none of them"}"#).unwrap_err().to_string();
        let known: Vec<&str> = error.split('`').skip(1).step_by(2).filter(|word| *word != "none of them").collect();
        assert_eq!(known, KINDS, "{error}");
    }

    #[test]
    fn an_agent_is_given_what_it_says_it_reads() {
        assert!(reads(Some("wipe, gates"), "gates") && !reads(Some("wipe, gates"), "gate"));
        assert!(!reads(Some(""), "wipe") && !reads(Some("rubbish\u{1}"), "wipe"));
        assert!(reads(None, "wipe") && !reads(None, "rotate_bmc"));
        assert_eq!(UNSAID.last(), Some(&"power_cycle"));
        assert!(KINDS.iter().all(|kind| reads(Some(&KINDS.join(",")), kind)));
    }
}
