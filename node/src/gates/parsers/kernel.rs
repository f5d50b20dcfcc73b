//! Compares the running kernel with the stack's kernel, or with the newest installed kernel if the
//! stack has none. Also checks the stack's kernel arguments and the taint flags.

use muster_core::gates::{Limit, Sample};

use super::{Bench, Reading};
use crate::converge::dpkg::Database;
use crate::converge::kernel_facts::{command_line, newest_release};

const FILE_MAX: u64 = 4096;

pub(super) fn measure(bench: &Bench<'_>) -> Result<Reading, String> {
    let machine = &bench.machine;
    let read = |path: &str| -> Result<String, String> {
        let bytes = machine
            .read(path, FILE_MAX)
            .map_err(|failure| failure.message)?
            .ok_or(format!("there is no {path}"))?;
        Ok(String::from_utf8_lossy(&bytes).trim().to_owned())
    };
    let running = read("/proc/sys/kernel/osrelease")?;
    let taint: u32 = read("/proc/sys/kernel/tainted")?
        .parse()
        .map_err(|_| "the kernel's taint is not a number")?;
    let database = Database::read(machine).map_err(|failure| failure.message)?;
    let installed =
        newest_release(database.names()).ok_or("dpkg knows no kernel package to compare with")?;
    let active = command_line(machine).map_err(|failure| failure.message)?;
    let stack = bench.plan.stack.as_ref();
    let packages = stack
        .iter()
        .flat_map(|stack| &stack.packages)
        .map(|package| package.name.as_str());
    // The stack's kernel wins over a newer installed kernel, because a stack may return to an older
    // release. The newer kernel is then still installed, or comes with the image.
    let brought = newest_release(packages);
    let expected = brought.as_ref().unwrap_or(&installed);
    let wanted = stack
        .map(|stack| stack.kernel_args.as_slice())
        .unwrap_or_default();
    let missing: Vec<&String> = wanted
        .iter()
        .filter(|argument| !active.contains(*argument))
        .collect();

    let mut reading = Reading::default();
    if running != *expected {
        let why = if brought.is_some() {
            "the stack's"
        } else {
            "installed"
        };
        reading
            .notes
            .push(format!("kernel {running} runs, {expected} is {why}"));
    }
    reading.notes.extend(
        missing
            .iter()
            .map(|argument| format!("kernel argument {argument} is not active")),
    );
    reading.samples.push(Sample {
        metric: "kernel.release",
        entity: String::new(),
        value: Limit::Text(running.clone()),
    });
    reading.count("kernel.unexpected", usize::from(running != *expected));
    // Without a stack, the required arguments are unknown and the metric is omitted.
    if stack.is_some() {
        reading.count("kernel.arguments_missing", missing.len());
    }
    // The taint is a bit field, and each bit is a reason
    // (Documentation/admin-guide/tainted-kernels.rst).
    reading.add("kernel.taint", taint.count_ones());
    if taint != 0 {
        reading
            .notes
            .push(format!("the kernel is tainted: {taint}"));
    }
    Ok(reading)
}
