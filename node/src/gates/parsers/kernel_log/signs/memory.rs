//! Machine checks, and errors of memory reported by EDAC and by the firmware.

use super::sign::{Sign, any, begins};

pub(super) const SIGNS: &[Sign] = &[
    Sign {
        meaning: "an error of memory or of a processor that was not corrected",
        metric: "kernel.mce_uncorrected",
        source: "Linux 6.12, drivers/edac/mce_amd.c, decode_error_status; edac_mc.c, edac_ue_error; edac_device.c; mm/memory-failure.c; drivers/firmware/efi/cper.c; arch/arm64/kernel/traps.c, arm64_serror_panic",
        counted: "EDAC MC0: 1 UE memory read error on CPU_SrcID#0_Ha#0_Chan#1_DIMM#0",
        silent: "EDAC MC0: Giving out device to module skx_edac",
        is_told: is_uncorrected,
    },
    Sign {
        meaning: "a machine check with the bit UC of MCi_STATUS, or with an unreadable status",
        metric: "kernel.mce_uncorrected",
        source: "Linux 6.12, arch/x86/kernel/cpu/mce/core.c, __print_mce; AMD64 Architecture Programmer's Manual, volume 2; Intel SDM, volume 3B",
        counted: "mce: [Hardware Error]: CPU 3: Machine Check Exception: 5 Bank 5: be00000000800400",
        silent: "mce: [Hardware Error]: TSC 0 ADDR fef1b040 MISC 7880010086",
        is_told: |message| is_machine_check(message) && !is_corrected_check(message),
    },
    Sign {
        meaning: "a corrected machine check",
        metric: "kernel.mce_corrected",
        source: "Linux 6.12, arch/x86/kernel/cpu/mce/core.c, __print_mce",
        counted: "mce: [Hardware Error]: CPU 3: Machine Check: 0 Bank 5: 8c00004000010090",
        silent: "mce: CPU0: Thermal monitoring enabled (TM1)",
        is_told: |message| is_machine_check(message) && is_corrected_check(message),
    },
    Sign {
        meaning: "a corrected error of memory",
        metric: "kernel.mce_corrected",
        source: "Linux 6.12, drivers/edac/mce_amd.c, decode_error_status; edac_mc.c, edac_ce_error; edac_device.c; mce/core.c, mce_notify_irq; drivers/firmware/efi/cper.c",
        counted: "EDAC MC0: 1 CE memory read error on CPU_SrcID#0_Ha#0_Chan#1_DIMM#0",
        silent: "usb 1-1: Product: CE UE CE reader",
        is_told: |message| {
            let words = [
                "[Hardware Error]: Corrected error",
                "Machine check events logged",
                "event severity: corrected",
            ];
            any(message, &words)
                || (message.starts_with("EDAC MC") && message.contains(" CE "))
                || (message.starts_with("EDAC DEVICE") && message.contains(": CE: "))
        },
    },
];

fn is_uncorrected(message: &str) -> bool {
    let words = [
        "[Hardware Error]: Uncorrected",
        "[Hardware Error]: Deferred error",
        "Uncorrected hardware memory error",
        "event severity: fatal",
        "event severity: recoverable",
    ];
    any(message, &words)
        || begins(message, &["Memory failure: ", "SError Interrupt on CPU"])
        || (message.starts_with("EDAC MC") && message.contains(" UE "))
        || (message.starts_with("EDAC DEVICE") && message.contains(": UE: "))
}

fn is_machine_check(message: &str) -> bool {
    any(message, &["Machine Check: ", "Machine Check Exception: "])
}

/// Returns whether MCi_STATUS is without the bit UC. An unreadable status is false, the worse case.
fn is_corrected_check(message: &str) -> bool {
    /// Bit UC of MCi_STATUS.
    const UNCORRECTED: u64 = 1 << 61;
    let status = message
        .split_once(" Bank ")
        .and_then(|(_, rest)| rest.split_once(": "))
        .map(|(_, status)| status.trim());
    let status = status.and_then(|status| {
        u64::from_str_radix(status.split(' ').next().unwrap_or_default(), 16).ok()
    });
    status.is_some_and(|status| status & UNCORRECTED == 0)
}
