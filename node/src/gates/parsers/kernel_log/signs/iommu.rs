//! IOMMUs of Intel, AMD and Arm: accesses of devices that were refused, and an IOMMU without an
//! answer. The metric is the metric of PCIe, because a transaction of a device failed.

use super::sign::{Sign, any, begins};

pub(super) const SIGNS: &[Sign] = &[
    Sign {
        meaning: "Intel's IOMMU refused an access, or a device did not answer the IOMMU",
        metric: "kernel.aer_uncorrected",
        source: "Linux 6.12, drivers/iommu/intel/dmar.c, dmar_fault_do_one and qi_check_fault",
        counted: "DMAR: [DMA Write NO_PASID] Request device [18:00.0] fault addr 0xe4b2000 [fault reason 0x05] PTE Write access is not set",
        silent: "DMAR: [Firmware Bug]: Your BIOS is broken; DMAR reported at address 0!",
        is_told: |message| {
            let refused = message.starts_with("DMAR: [") && message.contains("[fault reason ");
            refused || message.starts_with("DMAR: VT-d detected ")
        },
    },
    Sign {
        meaning: "AMD's IOMMU refused an access, or does not end a command",
        metric: "kernel.aer_uncorrected",
        source: "Linux 6.12, drivers/iommu/amd/iommu.c, amd_iommu_report_page_fault, iommu_print_event and wait_on_sem",
        counted: "smartpqi 0000:23:00.0: AMD-Vi: Event logged [IO_PAGE_FAULT domain=0x0000 address=0xffffffffffec0000 flags=0x0010]",
        silent: "AMD-Vi: Interrupt remapping enabled",
        is_told: |message| {
            let words = [
                "AMD-Vi: Event logged [",
                "AMD-Vi: Completion-Wait loop timed out",
            ];
            any(message, &words)
        },
    },
    Sign {
        meaning: "Arm's IOMMU refused an access",
        metric: "kernel.aer_uncorrected",
        source: "Linux 6.12, drivers/iommu/arm/arm-smmu-v3/arm-smmu-v3.c, arm_smmu_evtq_thread; arm-smmu/arm-smmu.c, arm_smmu_context_fault",
        counted: "arm-smmu-v3 arm-smmu-v3.0.auto: event 0x10 received:",
        silent: "arm-smmu-v3 arm-smmu-v3.0.auto: allocated 65536 entries for evtq",
        is_told: |message| {
            begins(message, &["arm-smmu-v3 ", "arm-smmu "])
                && any(
                    message,
                    &[": event 0x", ": event: ", ": Unhandled context fault: "],
                )
        },
    },
];
