//! Network adapters: the health of NVIDIA's adapters, and the loss of any link.

use super::sign::{Sign, any};

pub(super) const SIGNS: &[Sign] = &[
    Sign {
        meaning: "the firmware of an adapter reports an error, or does not answer",
        metric: "kernel.mlx5_fatal",
        source: "Linux 6.12, drivers/net/ethernet/mellanox/mlx5/core/health.c, poll_health, print_health_info and mlx5_health_try_recover; cmd.c; main.c, mlx5_function_enable and probe_one",
        counted: "mlx5_core 0000:97:00.0: poll_health:800:(pid 0): Fatal error 1 detected",
        silent: "mlx5_core 0000:97:00.0: firmware version: 28.39.1002",
        is_told: |message| {
            let words = [
                "device's health compromised",
                "unrecoverable hardware error",
                "Will cause a leak of a command resource",
                "health recovery failed",
                "health recovery flow aborted",
                " MS in pre-initializing state, aborting",
                "mlx5_init_one failed with error code",
            ];
            match firmware_health(message) {
                Some(health) => health == Health::Fatal,
                None => is_mlx5(message) && any(message, &words),
            }
        },
    },
    Sign {
        meaning: "the firmware of an adapter warns",
        metric: "kernel.mlx5_warnings",
        source: "Linux 6.12, mlx5/core/health.c, print_health_info; events.c, temp_warn and port_module; drivers/pci/pci.c, __pcie_print_link_status",
        counted: "mlx5_core 0000:97:00.0: print_health_info:430:(pid 0): Health issue observed, High temperature, severity(4) WARNING:",
        silent: "mlx5_core 0000:97:00.0: mlx5_health_try_recover:330:(pid 1): health recovery succeeded",
        is_told: |message| {
            let words = [
                "insufficient power",
                "igh temperature",
                "ACCESS_REG",
                "available PCIe bandwidth, limited by",
            ];
            match firmware_health(message) {
                Some(health) => health == Health::Warning,
                None => is_mlx5(message) && any(message, &words),
            }
        },
    },
    Sign {
        meaning: "a network link went down",
        metric: "kernel.link_downs",
        source: "Linux 6.12, mlx5/core/en_main.c, mlx5e_update_carrier; drivers/net/ethernet/intel/ice/ice_main.c, ice_print_link_msg; drivers/net/phy/phylink.c",
        counted: "mlx5_core 0000:97:00.0 enp151s0np0: Link down",
        silent: "ata3: SATA link down (SStatus 4 SControl 300)",
        is_told: |message| {
            let lower = message.to_ascii_lowercase();
            any(&lower, &["link down", "link is down", "lost carrier"])
                && !lower.contains("sata link down")
        },
    },
];

/// A health report of the adapter's firmware.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Health {
    Fatal,
    Warning,
}

fn is_mlx5(message: &str) -> bool {
    message.starts_with("mlx5_core")
}

fn firmware_health(message: &str) -> Option<Health> {
    /// `MLX5_SENSOR_NIC_DISABLED`: logged by every virtual function on its removal (SR-IOV is
    /// disabled).
    const DISABLED: &str = "Fatal error 3 detected";
    if !is_mlx5(message) {
        return None;
    }
    if message.contains("Fatal error ") && message.ends_with(" detected") {
        let disabled = message.ends_with(DISABLED);
        return Some(if disabled {
            Health::Warning
        } else {
            Health::Fatal
        });
    }
    // The numbers are the kernel's levels: 0 is an emergency, 3 an error, 4 a warning. An
    // unreadable level counts as fatal, the worse case.
    let (_, rest) = message.split_once("Health issue observed, ")?;
    let severity = rest
        .rsplit_once("severity(")
        .and_then(|(_, rest)| rest.split_once(')')?.0.parse::<u8>().ok());
    let warns = severity.is_some_and(|severity| severity > 3);
    Some(if warns {
        Health::Warning
    } else {
        Health::Fatal
    })
}
