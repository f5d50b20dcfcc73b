//! The table of the kernel's log in docs/gates.md is generated from the kinds of messages.
//! `UPDATE_DOCS=1 cargo nextest run -p muster-node the_page` writes the page again.

use std::fmt::Write as _;
use std::path::Path;

use super::{FAMILIES, of, sign::Sign};

const BEGIN: &str = "<!-- kernel log -->\n";
const END: &str = "<!-- /kernel log -->";

/// Returns the first kind of message that knows the words.
fn find_sign(message: &str) -> Option<&'static Sign> {
    FAMILIES
        .iter()
        .flat_map(|family| family.signs)
        .find(|sign| (sign.is_told)(message))
}

fn table() -> String {
    let mut text = String::from(
        "| of | fault | metric | a line that counts | a line that does not | source |\n\
         |---|---|---|---|---|---|\n",
    );
    for family in &FAMILIES {
        for sign in family.signs {
            let _ = writeln!(
                text,
                "| {} | {} | `{}` | `{}` | `{}` | {} |",
                family.name, sign.meaning, sign.metric, sign.counted, sign.silent, sign.source
            );
        }
    }
    text
}

#[test]
fn the_page_of_the_gates_has_every_kind_of_message() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/gates.md");
    let written = std::fs::read_to_string(&path).expect("docs/gates.md");
    let (head, rest) = written.split_once(BEGIN).expect("the place of the table");
    let (_, tail) = rest.split_once(END).expect("the end of the table");
    let wanted = format!("{head}{BEGIN}{}{END}{tail}", table());
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, wanted).expect("docs/gates.md is written");
        return;
    }
    assert!(
        written == wanted,
        "docs/gates.md differs from the kinds of messages: UPDATE_DOCS=1 writes the table"
    );
}

#[test]
fn every_kind_counts_its_line_and_leaves_the_other_alone() {
    for sign in FAMILIES.iter().flat_map(|family| family.signs) {
        let found = find_sign(sign.counted).map(|found| found.meaning);
        assert_eq!(found, Some(sign.meaning), "{}", sign.counted);
        assert_eq!(of(sign.counted), Some(sign.metric), "{}", sign.counted);
        assert_eq!(of(sign.silent), None, "{}", sign.silent);
        assert!(!sign.source.is_empty(), "{} has a source", sign.meaning);
    }
}

/// A user chooses the name of a process, of up to 15 bytes.
#[test]
fn the_name_of_a_process_is_no_fault_of_the_kernel() {
    for name in [
        "BUG: KASAN: x",
        "kernel BUG at x",
        "Internal error:",
        "Oops: x [#1]",
        "DMAR: [fault re",
        "nvme I/O error",
        "XFS (I/O Error",
    ] {
        for message in [
            format!("{name}[4242]: segfault at 0 ip 0000000000401136 sp 00007ffd error 4"),
            format!("traps: {name}[4242] general protection fault ip:401136 sp:7ffd error:0"),
            format!("{name}: attempt to access beyond end of device"),
            format!("{name}: page allocation failure: order:4, mode:0x40cc0(GFP_KERNEL)"),
            format!("{name}[4242]: unhandled exception: DABT (lower EL), ESR 0x92000045"),
            format!("INFO: task {name}:42 is blocked on a mutex likely owned by task a:43."),
            format!("CPU: 3 UID: 0 PID: 4242 Comm: {name} Not tainted 6.12.0 #1"),
        ] {
            assert_eq!(of(&message), None, "{message}");
        }
    }
    // The kernel's own fault counts beside any name.
    let fault = "EXT4-fs error (device sda1): ext4_lookup:1855: inode #2: comm (loop0: iget";
    assert_eq!(of(fault), Some("kernel.fs_readonly"));
}

/// Lines of public reports, and forms of other versions.
#[test]
fn other_lines_of_each_family_are_counted_for_what_they_are() {
    let lost = Some("kernel.gpu_lost");
    let amd = Some("kernel.amdgpu_fatal");
    let lockups = Some("kernel.lockups");
    let io = Some("kernel.io_errors");
    let readonly = Some("kernel.fs_readonly");
    let bus = Some("kernel.aer_uncorrected");
    #[rustfmt::skip]
    let table = [
        ("NVRM: nvAssertFailedNoLog: Assertion failed: Back to back GSP RPC timeout detected! GPU marked for reset @ kernel_gsp.c:2387", lost),
        ("NVRM: GPU 0000:02:00.0: rm_init_adapter failed, device minor number 0", lost),
        ("NVRM: GPU0 RmInitAdapter: Cannot initialize GSP firmware RM", lost),
        ("nvidia-uvm: uvm_global.c:425 uvm_global_set_fatal_error_impl[pid:77] Encountered a global fatal error: Reset required", lost),
        ("NVRM: No NVIDIA GPU found.", None),
        ("NVRM: objClInitPcieChipset: *** Chipset Setup Function Error!", None),
        ("amdgpu 0000:e3:00.0: amdgpu: uncorrectable hardware error(ERREVENT_ATHUB_INTERRUPT) detected!", amd),
        ("amdgpu 0000:e3:00.0: {4} Uncorrectable hardware error(ERREVENT_ATHUB_INTERRUPT) detected!", amd),
        ("[drm] RAS event of type ERREVENT_ATHUB_INTERRUPT detected!", amd),
        ("amdgpu: GPU Recovery Failed: -19", amd),
        ("[drm] Cannot read EDID during the wait: timeout", None),
        ("amdgpu: probe of 9876:00:00.0 failed with error -22", amd),
        ("amdgpu 0000:67:00.0: probe with driver amdgpu failed with error -22", amd),
        ("amdgpu 0000:03:00.0: amdgpu: Saved bad pages(50) reaches threshold value(50).", amd),
        ("general protection fault, probably for non-canonical address 0xdead000000000122: 0000 [#1] PREEMPT SMP NOPTI", lockups),
        ("general protection fault: 0000 [#2] SMP PTI", lockups),
        ("Oops: general protection fault, probably for non-canonical address 0xdead: 0000 [#1] SMP", lockups),
        ("Unable to handle kernel NULL pointer dereference at virtual address 0000000000000008", lockups),
        ("Internal error: synchronous external abort: 0000000096000410 [#1] SMP", lockups),
        ("kernel BUG at mm/slub.c:305!", lockups),
        ("invalid opcode: 0000 [#1] SMP NOPTI", lockups),
        ("BUG: Bad page state in process python3  pfn:1a2b3c", lockups),
        ("Kernel panic - not syncing: Fatal exception in interrupt", lockups),
        ("WARNING: CPU: 2 PID: 2926 at drivers/gpu/drm/drm_mm.c:939 drm_mm_takedown", None),
        ("general protection fault", None),
        ("SError Interrupt on CPU12, code 0x00000000be000011 -- SError", Some("kernel.mce_uncorrected")),
        ("EDAC DEVICE0: UE: cpu instance: cpu0 block: L2 count: 1 'A57'", Some("kernel.mce_uncorrected")),
        ("XFS (sda1): Metadata corruption detected at xfs_agf_verify+0x50/0x1a0 [xfs], xfs_agf block 0x1", readonly),
        ("XFS (sda1): metadata I/O error in \"xfs_imap_to_bp+0x50/0x70 [xfs]\" at daddr 0x40 len 32 error 5", io),
        ("XFS (loop3): Log I/O Error (0x2) detected at xlog_ioend_work+0x71/0x80 [xfs] (fs/xfs/xfs_log.c:1377).  Shutting down filesystem.", None),
        ("XFS (nbd0): log I/O error -5", None),
        ("BTRFS info (device sda2 state E): forced readonly", readonly),
        ("Aborting journal on device sda1-8.", readonly),
        ("Aborting journal on device loop0-8.", None),
        ("SQUASHFS error: Unable to read fragment cache entry [1a2b]", None),
        ("Buffer I/O error on dev nbd0, logical block 0, async page read", None),
        ("Buffer I/O error on dev zram0, logical block 0, async page read", None),
        ("I/O error, dev ram0, sector 0 op 0x0:(READ) flags 0x0 phys_seg 1 prio class 0", None),
        ("Buffer I/O error on device sda1, logical block 0", io),
        ("nvme nvme0: I/O tag 8 (1008) opcode 0x2 (I/O Cmd) QID 1 timeout, aborting req_op:READ(0) size:4096", io),
        ("nvme nvme0: controller is down; will reset: CSTS=0x3, PCI_STATUS=0x10", io),
        ("nvme0n1: Compare(0x5) @ LBA 0, 8 blocks, Compare Failure (sct 0x2 / sc 0x85) DNR", None),
        ("sd 0:1:0:0: Device offlined - not ready after error recovery", io),
        ("md/raid:md127: Cannot continue operation (2/8 failed).", io),
        ("md: super_written gets error=-5", io),
        ("mpt3sas_cm0: fault_state(0x5854)!", io),
        ("megaraid_sas 0000:01:00.0: 1234 (700000000s/0x0001/CRIT) - VD 00/0 is now DEGRADED", io),
        ("hpsa 0000:03:00.0: Controller lockup detected: 0x00130000 after 30", io),
        ("aacraid: Host bus reset request. SCSI hang ?", io),
        ("AMD-Vi: Event logged [IO_PAGE_FAULT device=00.14.4 domain=0x000a address=0x0 flags=0x0000]", bus),
        ("DMAR: DRHD: handling fault status reg 2", None),
        ("pci 0000:01:00.0: not ready 65535ms after FLR; giving up", bus),
        ("mlx5_core 0000:61:00.1: mlx5_health_try_recover:381:(pid 1): health recovery flow aborted, PCI reads still not working", Some("kernel.mlx5_fatal")),
        ("INFO: task kworker/u8:1:77 blocked in I/O wait for more than 122 seconds.", Some("kernel.hung_tasks")),
    ];
    for (message, wanted) in table {
        assert_eq!(of(message), wanted, "{message}");
    }
}
