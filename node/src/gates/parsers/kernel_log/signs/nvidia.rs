//! NVIDIA's GPU driver, in messages without an Xid.

use super::sign::{Sign, any};

pub(super) const SIGNS: &[Sign] = &[
    Sign {
        meaning: "a GPU left the bus",
        metric: "kernel.gpu_lost",
        source: "open-gpu-kernel-modules 595.45.04, osinit.c, osHandleGpuLost; osapi.c; kernel-open/nvidia/nv.c; nvstatuscodes.h, NV_ERR_GPU_IS_LOST",
        counted: "NVRM: GPU 0000:9b:00.0: GPU has fallen off the bus.",
        silent: "NVRM: GPU at PCI:0000:9b:00: GPU-efbdfde9-5798-a6e7-4c46-12518fa15375",
        is_told: |message| {
            let words = ["fallen off the bus", "GPU is lost", "[NV_ERR_GPU_IS_LOST]"];
            message.starts_with("NVRM:") && any(message, &words)
        },
    },
    Sign {
        meaning: "a GPU needs a reset",
        metric: "kernel.gpu_lost",
        source: "open-gpu-kernel-modules 595.45.04, kernel_gsp.c; kernel_rc_callback.c; nvstatuscodes.h, NV_ERR_RESET_REQUIRED, NV_ERR_FATAL_ERROR and NV_ERR_ECC_ERROR",
        counted: "NVRM: nvAssertOkFailedNoLog: Assertion failed: Reset required [NV_ERR_RESET_REQUIRED] (0x00000062) returned from status @ kernel_channel.c:2827",
        silent: "NVRM: nvAssertOkFailedNoLog: Assertion failed: Generic operating system error [NV_ERR_OPERATING_SYSTEM] (0x00000059) returned from status @ osinit.c:1",
        is_told: |message| {
            let words = [
                "[NV_ERR_RESET_REQUIRED]",
                "[NV_ERR_FATAL_ERROR]",
                "[NV_ERR_ECC_ERROR]",
                "GPU marked for reset",
                "Gpu marked for reset",
                "likely in a bad state and may need to be reset",
            ];
            message.starts_with("NVRM:") && any(message, &words)
        },
    },
    Sign {
        meaning: "the driver could not start a GPU",
        metric: "kernel.gpu_lost",
        source: "open-gpu-kernel-modules 595.45.04, osinit.c, RmInitAdapter; kernel-open/nvidia/nv.c, nv_start_device; nv-pci.c",
        counted: "NVRM: GPU 0000:02:00.0: RmInitAdapter failed! (0x24:0x65:1185)",
        silent: "NVRM: The NVIDIA probe routine was not called for 1 device(s).",
        is_told: |message| {
            let words = [
                "RmInitAdapter failed!",
                "rm_init_adapter failed",
                "Cannot initialize GSP firmware RM",
                "NVIDIA probe routine failed for ",
                "assigned to your NVIDIA device is invalid",
            ];
            message.starts_with("NVRM:") && any(message, &words)
        },
    },
    Sign {
        meaning: "unified memory (UVM) failed for the whole machine",
        metric: "kernel.gpu_lost",
        source: "open-gpu-kernel-modules 595.45.04, nv_gpu_ops.c, nvGpuOpsReportFatalError; uvm_global.c, uvm_global_set_fatal_error_impl",
        counted: "NVRM: nvGpuOpsReportFatalError: uvm encountered global fatal error 0x60, requiring os reboot to recover.",
        silent: "nvidia-uvm: Loaded the UVM driver, major device number 511.",
        is_told: |message| {
            (message.starts_with("NVRM:") && message.contains("uvm encountered global fatal error"))
                || (message.starts_with("nvidia-uvm: ")
                    && message.contains("Encountered a global fatal error"))
        },
    },
    Sign {
        meaning: "the driver could not start an NVSwitch",
        metric: "kernel.gpu_lost",
        source: "open-gpu-kernel-modules 595.45.04, kernel-open/nvidia/linux_nvswitch.c, nvswitch_init_device and nvswitch_probe",
        counted: "nvidia-nvswitch0: Failed to initialize device : -5",
        silent: "nvidia-nvswitch0: open (major=510)",
        is_told: |message| {
            let words = [
                ": Failed to initialize device : ",
                ": Failed to register device : ",
                ": Failed to initialize interrupt : ",
                ": Failed to enable PCI device : ",
            ];
            message.starts_with("nvidia-nvswitch") && any(message, &words)
        },
    },
];
