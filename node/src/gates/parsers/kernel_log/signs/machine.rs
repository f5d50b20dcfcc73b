//! Faults of the kernel: processors without progress, work without an end, and oopses.

use super::sign::{Sign, any, begins};

pub(super) const SIGNS: &[Sign] = &[
    Sign {
        meaning: "work of the kernel does not end; also in a guest that waits for virtual processors",
        metric: "kernel.stalls",
        source: "Linux 6.12, kernel/workqueue.c, wq_watchdog_timer_fn; kernel/rcu/tree_exp.h, synchronize_rcu_expedited_wait",
        counted: "BUG: workqueue lockup - pool cpus=3 node=0 flags=0x0 nice=0 stuck for 33s!",
        silent: "workqueue: blk_mq_run_work_fn hogged CPU for >10000us 4 times, consider switching to WQ_UNBOUND",
        is_told: |message| {
            message.starts_with("BUG: workqueue lockup")
                || message.contains("detected expedited stalls on")
        },
    },
    Sign {
        meaning: "a processor stands still",
        metric: "kernel.lockups",
        source: "Linux 6.12, kernel/watchdog.c, watchdog_timer_fn and watchdog_hardlockup_check; kernel/rcu/tree_stall.h",
        counted: "rcu: INFO: rcu_sched self-detected stall on CPU",
        silent: "rcu: Hierarchical RCU implementation.",
        is_told: |message| {
            let words = [
                "soft lockup",
                "hard LOCKUP",
                "detected stall",
                "Hard LOCKUP",
            ];
            any(message, &words)
        },
    },
    Sign {
        meaning: "the kernel hit a bug of its own, or panicked",
        metric: "kernel.lockups",
        source: "Linux 6.12, arch/x86/mm/fault.c, show_fault_oops; arch/arm64/mm/fault.c, die_kernel_fault; lib/bug.c, report_bug; kernel/sched/core.c, __schedule_bug; mm/page_alloc.c, bad_page; kernel/panic.c, panic; node-problem-detector, KernelOops",
        counted: "BUG: unable to handle page fault for address: ffffffffc0a1b2c3",
        silent: "BUG: Bad rss-counter state mm:00000000e8a3c0b1 type:MM_ANONPAGES val:1",
        is_told: |message| {
            let starts = [
                "BUG: unable to handle ",
                "BUG: kernel NULL pointer dereference",
                "BUG: scheduling while atomic",
                "BUG: stack guard page was hit",
                "BUG: TASK stack guard page was hit",
                "BUG: IRQ stack guard page was hit",
                "BUG: Bad page ",
                "BUG: KASAN: ",
                "kernel BUG at ",
                "Unable to handle kernel ",
                "Kernel panic - not syncing",
                "PANIC: double fault",
                "traps: PANIC: double fault",
            ];
            begins(message, &starts)
        },
    },
    Sign {
        meaning: "an oops: a part of the kernel was killed",
        metric: "kernel.lockups",
        source: "Linux 6.12, arch/x86/kernel/dumpstack.c, __die_header; arch/x86/kernel/traps.c; arch/arm64/kernel/traps.c, __die",
        counted: "Internal error: Oops: 0000000096000044 [#1] SMP",
        silent: "traps: python3[4242] general protection fault ip:401136 sp:7ffd error:0 in a[401000+1000]",
        is_told: |message| {
            let starts = [
                "Oops",
                "Internal error: ",
                "general protection fault",
                "invalid opcode: ",
                "divide error: ",
                "stack segment: ",
                "double fault: ",
                "int3: ",
                "alignment check: ",
                "invalid TSS: ",
                "segment not present: ",
                "page fault: ",
            ];
            begins(message, &starts) && has_number_of_death(message)
        },
    },
];

/// Returns whether the message has the count of oopses since the boot, `[#1]`.
fn has_number_of_death(message: &str) -> bool {
    let rest = message.split_once(" [#").map_or("", |(_, rest)| rest);
    let digits = rest.split_once(']').map_or("", |(digits, _)| digits);
    !digits.is_empty() && digits.chars().all(|c| c.is_ascii_digit())
}
