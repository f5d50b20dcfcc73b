//! Failed SAS and RAID controllers.

use super::sign::{Sign, any, begins};

pub(super) const SIGNS: &[Sign] = &[
    Sign {
        meaning: "the firmware of a MegaRAID controller stopped, or reports a critical event",
        metric: "kernel.io_errors",
        source: "Linux 6.12, drivers/scsi/megaraid/megaraid_sas_base.c, megasas_transition_to_ready, format_level and megasas_decode_evt; megaraid_sas_fusion.c",
        counted: "megaraid_sas 0000:01:00.0: FW in FAULT state, Fault code:0x10000 subcode:0x0 func:megasas_transition_to_ready",
        silent: "megaraid_sas 0000:01:00.0: 1234 (700000000s/0x0020/info) - Patrol Read complete",
        is_told: |message| {
            let words = [
                "FW in FAULT state",
                "killing adapter",
                "Failed to transition controller to ready",
                "/CRIT) - ",
                "/FATAL) - ",
                "/DEAD) - ",
            ];
            begins(message, &["megaraid_sas ", "megasas: "]) && any(message, &words)
        },
    },
    Sign {
        meaning: "the firmware of a Broadcom SAS controller stopped",
        metric: "kernel.io_errors",
        source: "Linux 6.12, drivers/scsi/mpt3sas/mpt3sas_base.c, _base_fault_reset_work; mpt3sas_base.h, mpt3sas_print_fault_code and mpt3sas_print_coredump_info",
        counted: "mpt3sas_cm0: SAS host is non-operational !!!!",
        silent: "mpt3sas_cm0: log_info(0x31110d00): originator(PL), code(0x11), sub_code(0x0d00)",
        is_told: |message| {
            let words = [
                "SAS host is non-operational",
                "fault_state(0x",
                "coredump_state(0x",
            ];
            begins(message, &["mpt3sas_cm", "mpt2sas_cm"]) && any(message, &words)
        },
    },
    Sign {
        meaning: "the firmware of a Microchip, HPE or Adaptec controller stopped",
        metric: "kernel.io_errors",
        source: "Linux 6.12, drivers/scsi/smartpqi/smartpqi_sis.c, sis_is_firmware_running; hpsa.c, controller_lockup_detected; aacraid/linit.c, aac_eh_host_reset",
        counted: "smartpqi 0000:23:00.0: controller is offline: status code 0x14803",
        silent: "smartpqi 0000:23:00.0: added 0:1:0:0 0000000000000000 RAID RAID-1",
        is_told: |message| {
            let pqi = message.starts_with("smartpqi ")
                && any(message, &["controller is offline", "controller offline"]);
            let hpsa =
                message.starts_with("hpsa ") && message.contains("ontroller lockup detected");
            let aac =
                message.starts_with("aacraid") && any(message, &["SCSI hang ?", "kernel panic"]);
            pqi || hpsa || aac
        },
    },
];
