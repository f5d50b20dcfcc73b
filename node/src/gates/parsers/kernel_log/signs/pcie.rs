//! PCI Express: Advanced Error Reporting in both spellings of the kernel, disabled ports, and
//! devices without an answer.

use super::sign::{Sign, any};

pub(super) const SIGNS: &[Sign] = &[
    Sign {
        meaning: "a port disabled the link (DPC)",
        metric: "kernel.aer_uncorrected",
        source: "Linux 6.12, drivers/pci/pcie/dpc.c, dpc_process_error",
        counted: "pcieport 0000:30:03.0: DPC: containment event, status:0x1f01 source:0x0000",
        silent: "pcieport 0000:30:03.0: DPC: error containment capabilities: Int Msg #0, RPExt+ PoisonedTLP+ SwTrigger+ RP PIO Log 4, DL_ActiveErr+",
        is_told: |message| message.contains("DPC: containment event"),
    },
    Sign {
        meaning: "an error that the link did not correct (AER)",
        metric: "kernel.aer_uncorrected",
        source: "Linux 6.12, drivers/pci/pcie/aer.c, aer_print_port_info and aer_print_error; err.c, pcie_do_recovery",
        counted: "pcieport 0000:00:01.0: AER: Uncorrectable (Non-Fatal) error message received from 0000:01:00.0",
        silent: "pcieport 0000:00:01.0: AER: enabled with IRQ 24",
        is_told: |message| {
            let words = [
                "Uncorrected",
                "Uncorrectable",
                "severity=Fatal",
                "device recovery failed",
            ];
            is_aer(message) && any(message, &words)
        },
    },
    Sign {
        meaning: "a corrected error of a link (AER)",
        metric: "kernel.aer_corrected",
        source: "Linux 6.12, drivers/pci/pcie/aer.c, aer_print_port_info",
        counted: "pcieport 0000:00:01.0: AER: Correctable error message received from 0000:01:00.0",
        silent: "nvme 0000:01:00.0: PCIe Bus Error: severity=Corrected, type=Physical Layer, (Receiver ID)",
        // The kernel writes two lines per error. Only the line reporting the arrival is counted.
        is_told: |message| {
            is_aer(message)
                && any(message, &["Corrected error", "Correctable error"])
                && message.contains("received")
        },
    },
    Sign {
        meaning: "a device of the bus gives no answer",
        metric: "kernel.aer_uncorrected",
        source: "Linux 6.12, drivers/pci/pci.c, pci_dev_wait and pci_power_up; drivers/net/ethernet/intel/igb/igb_main.c, igb_rd32",
        counted: "nvme 0000:04:00.0: Unable to change power state from D3cold to D0, device inaccessible",
        silent: "pci 0000:01:00.0: not ready 1023ms after FLR; waiting",
        is_told: |message| {
            let power = message.contains("nable to change power state from ")
                && message.contains("device inaccessible");
            let reset = message.contains(": not ready ") && message.ends_with("; giving up");
            power || reset || message.contains(": PCIe link lost")
        },
    },
];

fn is_aer(message: &str) -> bool {
    any(message, &["AER: ", "PCIe Bus Error: "])
}
