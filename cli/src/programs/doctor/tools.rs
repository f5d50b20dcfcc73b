//! System programs started by the agent.

use super::Found;

/// The programs, with purpose and Debian package.
const TOOLS: [(&str, &str, &str); 3] = [
    (
        "ipmitool",
        "nodes with IPMI BMCs cannot be powered",
        "ipmitool",
    ),
    (
        "scontrol",
        "no node is admitted to Slurm by this agent",
        "slurm-client",
    ),
    (
        "iperf3",
        "gates that measure the network to the agent do not run",
        "iperf3",
    ),
];

pub(super) fn check() -> Vec<Found> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let look = |(name, without, package): (&str, &str, &str)| {
        let found = std::env::split_paths(&path)
            .map(|folder| folder.join(name))
            .find(|file| file.is_file());
        match found {
            Some(file) => Found::ok(format!("{} is there", file.display())),
            None => Found::warn(
                format!("{name} is not on the path: {without}"),
                format!("if needed: apt install {package}"),
            ),
        }
    };
    TOOLS.into_iter().map(look).collect()
}
