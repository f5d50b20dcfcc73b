//! Transactions of the driver's packages in apt's own log on the machine.

use anyhow::Context;

use super::super::veteran::Veteran;

const LOG: &str = "/var/log/apt/history.log";
/// The fields of a transaction with packages.
const CHANGES: [&str; 6] = [
    "Install:",
    "Reinstall:",
    "Upgrade:",
    "Downgrade:",
    "Remove:",
    "Purge:",
];

/// Counts the transactions that changed a package of the driver.
pub(super) async fn count_moves(admin: &Veteran<'_>) -> anyhow::Result<usize> {
    let log = admin.run(&["cat", LOG]).await.context("apt's history")?;
    Ok(count_transactions(&log))
}

/// Counts the blocks of the log in which a changed package has `nvidia` in its name.
fn count_transactions(log: &str) -> usize {
    let is_move = |block: &&str| {
        let mut lines = block.lines();
        lines.any(|line| {
            let is_change = CHANGES.iter().any(|change| line.starts_with(change));
            is_change && line.contains("nvidia")
        })
    };
    log.split("\n\n").filter(is_move).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transactions_of_the_driver_are_counted_once_each() {
        let log = "\nStart-Date: 2026-11-30  10:00:00\nCommandline: apt-get install nvidia-smi=1\n\
            Install: nvidia-smi:amd64 (1), libcuda1:amd64 (1)\nRemove: nvidia-old:amd64 (1)\n\
            End-Date: 2026-11-30  10:01:00\n\nStart-Date: 2026-11-30  11:00:00\n\
            Commandline: apt-get install nvidia-smi=1 munge=2\nUpgrade: munge:amd64 (1, 2)\n\
            End-Date: 2026-11-30  11:01:00\n\nStart-Date: 2026-11-30  12:00:00\n\
            Purge: nvidia-smi:amd64 (1)\nEnd-Date: 2026-11-30  12:01:00\n";
        assert_eq!(count_transactions(log), 2);
        assert_eq!(count_transactions(""), 0);
    }
}
