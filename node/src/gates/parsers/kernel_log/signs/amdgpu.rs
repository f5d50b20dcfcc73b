//! AMD's GPU driver.

use super::sign::{Sign, any, begins};

pub(super) const SIGNS: &[Sign] = &[
    Sign {
        meaning: "errors that RAS did not correct",
        metric: "kernel.amdgpu_fatal",
        source: "Linux 6.12, drivers/gpu/drm/amd/amdgpu/amdgpu_ras.c, amdgpu_ras_error_generate_report",
        counted: "amdgpu 0000:03:00.0: amdgpu: socket: 0, die: 0, 1 new uncorrectable hardware errors detected in umc block",
        silent: "amdgpu 0000:03:00.0: amdgpu: 7 correctable hardware errors detected in umc block",
        is_told: |message| is_amd(message) && has_new_errors(message),
    },
    Sign {
        meaning: "an error told by an interrupt, before a reset",
        metric: "kernel.amdgpu_fatal",
        source: "Linux 6.12, amdgpu_ras.c, amdgpu_ras_global_ras_isr; 5.4 in other words; ROCm issue 4021",
        counted: "amdgpu 0000:68:00.0: {1}uncorrectable hardware error(ERREVENT_ATHUB_INTERRUPT) detected!",
        silent: "[drm] UVD VCPU state may lost due to RAS ERREVENT_ATHUB_INTERRUPT",
        is_told: |message| {
            let words = [
                "ERREVENT_ATHUB_INTERRUPT) detected",
                "ERREVENT_ATHUB_INTERRUPT detected",
            ];
            (is_amd(message) || message.starts_with("[drm] ")) && any(message, &words)
        },
    },
    Sign {
        meaning: "a GPU left the bus, or a reset failed",
        metric: "kernel.amdgpu_fatal",
        source: "Linux 6.12, drivers/gpu/drm/amd/amdgpu/amdgpu_device.c, amdgpu_device_health_check and amdgpu_device_gpu_recover",
        counted: "amdgpu 0000:03:00.0: amdgpu: device lost from bus!",
        silent: "amdgpu 0000:03:00.0: amdgpu: GPU reset(2) succeeded!",
        is_told: |message| {
            is_amd(message) && any(message, &["device lost from bus!", "GPU Recovery Failed: "])
        },
    },
    Sign {
        meaning: "the driver could not start a GPU",
        metric: "kernel.amdgpu_fatal",
        source: "Linux 6.12, drivers/gpu/drm/amd/amdgpu/amdgpu_kms.c, amdgpu_driver_load_kms; drivers/base/dd.c, call_driver_probe",
        counted: "amdgpu 0000:67:00.0: amdgpu: Fatal error during GPU init",
        silent: "amdgpu 0000:67:00.0: amdgpu: Fetched VBIOS from VFCT",
        is_told: |message| {
            let probe = begins(message, &["amdgpu ", "amdgpu: "])
                && message.contains("probe ")
                && message.contains(" failed with error ");
            probe || (is_amd(message) && message.contains("Fatal error during GPU init"))
        },
    },
    Sign {
        meaning: "too many retired pages",
        metric: "kernel.amdgpu_fatal",
        source: "Linux 6.12, amdgpu_ras_eeprom.c, amdgpu_ras_eeprom_check and amdgpu_ras_eeprom_append",
        counted: "amdgpu 0000:03:00.0: amdgpu: RAS records:52 exceed threshold:50, GPU will not be initialized. Replace this GPU or increase the threshold",
        silent: "amdgpu 0000:03:00.0: amdgpu: RAS records:46 exceeds 90% of threshold:50",
        is_told: |message| {
            let records =
                message.contains("RAS records:") && message.contains(" exceed threshold:");
            is_amd(message) && (records || message.contains(" reaches threshold value"))
        },
    },
    Sign {
        meaning: "a reset, or a ring with a timeout; a user's program can cause both",
        metric: "kernel.amdgpu_resets",
        source: "Linux 6.12, amdgpu_device.c, amdgpu_device_gpu_recover; amdgpu_job.c, amdgpu_job_timedout",
        counted: "[drm:amdgpu_job_timedout [amdgpu]] *ERROR* ring sdma0 timeout, signaled seq=7, emitted seq=9",
        silent: "amdgpu 0000:03:00.0: ring gfx_0.0.0 uses VM inv eng 0 on hub 0",
        is_told: |message| {
            let ring = message.split_once("ring ");
            let timeout = ring.is_some_and(|(_, rest)| rest.contains(" timeout"));
            is_amd(message) && (timeout || message.contains("GPU reset begin!"))
        },
    },
];

fn is_amd(message: &str) -> bool {
    begins(message, &["amdgpu ", "amdgpu: ", "[drm:amdgpu_"])
}

/// Returns whether a report has a count of new errors. A line with the total of earlier errors is
/// skipped. A count other than a number, such as `no`, is zero.
fn has_new_errors(message: &str) -> bool {
    const UNCORRECTED: &str = " uncorrectable hardware errors detected in ";
    let Some((before, block)) = message.split_once(UNCORRECTED) else {
        return false;
    };
    let count = before
        .trim_end_matches(" new")
        .rsplit(' ')
        .next()
        .and_then(|word| word.parse().ok())
        .unwrap_or(0u64);
    count > 0 && !block.starts_with("total ")
}
