//! Device nodes of a loaded driver. The module makes no nodes: programs of the driver run
//! nvidia-modprobe at their start.

use std::collections::BTreeSet;
use std::time::Duration;

use muster_core::wire::node::FailureCode;

use super::super::kernel_facts;
use crate::job::JobContext;
use crate::machine::Machine;

const NVIDIA_MODPROBE: &str = "/usr/bin/nvidia-modprobe";
const NVIDIA_MODPROBE_TIMEOUT: Duration = Duration::from_secs(60);
/// Folder with a folder for each GPU.
const GPUS: &str = "/proc/driver/nvidia/gpus";
/// Number of GPUs read of the folder. nvidia-modprobe takes 64 numbers.
const GPUS_MAX: usize = 32;
/// Longest description of a GPU, in bytes.
const INFORMATION_MAX: u64 = 1 << 16;
/// Number of `/dev/nvidia-modeset`; numbers of GPUs are lower.
const MODESET: u8 = 254;
/// Number of `/dev/nvidiactl`.
const CONTROL: u8 = 255;

/// Makes the missing nodes of the GPUs, and of unified memory, whose module is loaded for that. A
/// failure is logged: the specification then lacks the node.
pub(crate) fn make(machine: &Machine, cx: &JobContext) {
    let is_loaded = kernel_facts::is_loaded(machine, "nvidia");
    if !is_loaded || !machine.path(NVIDIA_MODPROBE).exists() {
        return;
    }
    let mut numbers = list_minors(machine);
    if numbers.is_empty() {
        return;
    }
    numbers.insert(CONTROL);
    let numbers: Vec<String> = numbers.iter().map(ToString::to_string).collect();
    let mut of_gpus = vec![NVIDIA_MODPROBE];
    of_gpus.extend(numbers.iter().flat_map(|number| ["-c", number.as_str()]));
    // `-u` alone loads the module and makes no node.
    let of_memory = [NVIDIA_MODPROBE, "-u", "-c", "0"];
    for argv in [&of_gpus[..], &of_memory[..]] {
        let code = FailureCode::CdiIncomplete;
        if let Err(failure) = machine.output(cx, code, argv, NVIDIA_MODPROBE_TIMEOUT) {
            cx.log(&failure.message);
        }
    }
}

/// Returns the numbers of the GPUs' nodes.
fn list_minors(machine: &Machine) -> BTreeSet<u8> {
    let folders = std::fs::read_dir(machine.path(GPUS))
        .into_iter()
        .flatten()
        .flatten()
        .take(GPUS_MAX);
    let minor_of = |folder: std::fs::DirEntry| {
        let name = folder.file_name().into_string().ok()?;
        let path = format!("{GPUS}/{name}/information");
        let bytes = machine.read(&path, INFORMATION_MAX).ok()??;
        read_minor(&String::from_utf8_lossy(&bytes))
    };
    folders.filter_map(minor_of).collect()
}

fn read_minor(information: &str) -> Option<u8> {
    let mut lines = information.lines();
    let number = lines.find_map(|line| line.strip_prefix("Device Minor:"))?;
    let number: u8 = number.trim().parse().ok()?;
    (number < MODESET).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_a_node_is_read_from_the_description() {
        for (text, wanted) in [
            (
                "Model: \t\t H\nDevice Minor: \t 7\nGPU Excluded:\t No\n",
                Some(7),
            ),
            ("Model: \t\t H\n", None),
            ("Device Minor: \t 254\n", None),
            ("Device Minor: \t 256\n", None),
            ("Device Minor: \t -c\n", None),
        ] {
            assert_eq!(read_minor(text), wanted, "{text}");
        }
    }
}
