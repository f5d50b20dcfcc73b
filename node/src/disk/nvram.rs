//! The firmware's boot entries. The disk gets an entry behind the network's entry, so that an armed
//! boot works without a BMC. The default answer of the network is the local disk.

use std::time::Duration;

use muster_core::wire::node::{Failure, FailureCode};

use crate::failure::fatal;
use crate::job::JobContext;
use crate::paths;
use crate::tool::{self, Call};

use super::find::Target;

/// Label prefix of Muster's entries; older entries with the prefix are removed.
const LABEL: &str = "Muster";
const LOADER: &str = r"\EFI\BOOT\BOOTX64.EFI";
/// Longest run of efibootmgr: firmware flash can be slow, but never needs minutes.
const TIMEOUT: Duration = Duration::from_secs(60);

/// An entry of `efibootmgr -v`.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Entry {
    /// Four hex digits.
    number: String,
    /// Label and device path, as printed.
    text: String,
}

/// Writes Muster's entry and the boot order. `None` on a machine booted by BIOS.
///
/// # Errors
/// `nvram` when the firmware does not keep the entry, `tool_failed`.
pub fn write(
    cx: &JobContext,
    target: &Target,
    esp: u32,
    image: &str,
) -> Result<Option<String>, Failure> {
    if !paths::at("/sys/firmware/efi").is_dir() {
        return Ok(None);
    }
    for old in list(cx)?
        .entries
        .iter()
        .filter(|entry| entry.text.starts_with(LABEL))
    {
        run(
            cx,
            &["--quiet", "--delete-bootnum", "--bootnum", &old.number],
        )?;
    }
    let (label, esp) = (format!("{LABEL} {image}"), esp.to_string());
    run(
        cx,
        &[
            "--quiet",
            "--create-only",
            "--disk",
            target.device(),
            "--part",
            &esp,
            "--label",
            &label,
            "--loader",
            LOADER,
        ],
    )?;
    let Printed {
        entries,
        order,
        current,
    } = list(cx)?;
    let ours = entries
        .iter()
        .find(|entry| entry.text.starts_with(&label))
        .ok_or_else(|| {
            fatal(
                FailureCode::Nvram,
                "the firmware did not keep the new boot entry",
            )
        })?;
    run(
        cx,
        &[
            "--quiet",
            "--bootorder",
            &ordered(&entries, &order, current.as_deref(), &ours.number).join(","),
        ],
    )?;
    Ok(Some(format!("Boot{}", ours.number)))
}

/// Returns the boot order: the network entry of the present boot, then Muster's entry, then the
/// rest. With IPv6 and HTTP entries before the disk, a firmware would try each of these entries for
/// a minute on every unarmed boot. All network entries come first when the present boot used none.
fn ordered(entries: &[Entry], order: &[String], current: Option<&str>, ours: &str) -> Vec<String> {
    let is_network = |number: &&String| {
        let entry = entries.iter().find(|entry| entry.number == **number);
        entry.is_some_and(|entry| {
            ["MAC(", "IPv4(", "IPv6(", "PXE"]
                .iter()
                .any(|word| entry.text.contains(word))
        })
    };
    let others = || order.iter().filter(|number| *number != ours);
    let current = others()
        .filter(is_network)
        .find(|number| Some(number.as_str()) == current);
    let is_first =
        |number: &&String| current.map_or_else(|| is_network(number), |current| current == *number);
    let network = others().filter(is_first).cloned();
    let rest = others().filter(|number| !is_first(number)).cloned();
    network.chain([ours.to_owned()]).chain(rest).collect()
}

fn list(cx: &JobContext) -> Result<Printed, Failure> {
    Ok(parse(&String::from_utf8_lossy(&run(cx, &["-v"])?)))
}

/// The output of `efibootmgr -v`.
struct Printed {
    entries: Vec<Entry>,
    /// Entry numbers in boot order.
    order: Vec<String>,
    /// The entry of the present boot.
    current: Option<String>,
}

fn parse(text: &str) -> Printed {
    let entry = |line: &str| {
        let rest = line.strip_prefix("Boot")?;
        let (number, rest) = rest.split_at_checked(4)?;
        let is_number = number.bytes().all(|byte| byte.is_ascii_hexdigit());
        let text = rest.strip_prefix(['*', ' '])?.trim_start();
        is_number.then(|| Entry {
            number: number.to_owned(),
            text: text.to_owned(),
        })
    };
    let order = text
        .lines()
        .find_map(|line| line.strip_prefix("BootOrder:"))
        .unwrap_or_default();
    let order = order
        .split(',')
        .map(|number| number.trim().to_owned())
        .filter(|number| !number.is_empty());
    let current = text
        .lines()
        .find_map(|line| line.strip_prefix("BootCurrent:"))
        .map(|number| number.trim().to_owned());
    Printed {
        entries: text.lines().filter_map(entry).collect(),
        order: order.collect(),
        current,
    }
}

fn run(cx: &JobContext, arguments: &[&str]) -> Result<Vec<u8>, Failure> {
    let argv = [&["efibootmgr"], arguments].concat();
    let done = tool::run(
        cx,
        &Call {
            argv: &argv,
            timeout: Some(TIMEOUT),
            ..Call::default()
        },
    )?;
    match done.status.success() {
        true => Ok(done.stdout),
        false => Err(fatal(
            FailureCode::Nvram,
            format!(
                "efibootmgr {} failed: {}",
                arguments.join(" "),
                tool::tail(&done.stderr, 600)
            ),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Printed by efibootmgr 17 under OVMF; device paths shortened.
    const PRINTED: &str = "BootCurrent: 0002\nTimeout: 0 seconds\nBootOrder: 0000,0001,0002,0003,0004,0005\n\
        Boot0000* UiApp\tFvVol(7cb8bdc9)/FvFile(462caa21)\n\
        Boot0001* UEFI Misc Device\tPciRoot(0x0)/Pci(0x3,0x0){auto_created_boot_option}\n\
        Boot0002* UEFI PXEv4 (MAC:525400123456)\tPciRoot(0x0)/Pci(0x2,0x0)/MAC(525400123456,1)/IPv4(0.0.0.0)\n\
        Boot0003* EFI Internal Shell\tFvVol(7cb8bdc9)\n\
        Boot0004* Muster 0123456789ab\tHD(2,GPT,6f3a)/File(\\EFI\\BOOT\\BOOTX64.EFI)\n\
        Boot0005* UEFI PXEv6 (MAC:525400123456)\tPciRoot(0x0)/Pci(0x2,0x0)/MAC(525400123456,1)/IPv6([::]:<->[::]:,0,0)\n";

    #[test]
    fn the_entry_we_booted_from_stays_first_and_the_disk_comes_next() {
        let Printed {
            entries,
            order,
            current,
        } = parse(PRINTED);
        assert_eq!(entries.len(), 6);
        assert!(entries[4].text.starts_with("Muster 0123456789ab"));
        assert_eq!(
            ordered(&entries, &order, current.as_deref(), "0004").join(","),
            "0002,0004,0000,0001,0003,0005"
        );
        assert_eq!(
            ordered(&entries, &order, Some("0000"), "0004").join(","),
            "0002,0005,0004,0000,0001,0003"
        );
        assert_eq!(
            ordered(&entries, &["0003".into()], current.as_deref(), "0004").join(","),
            "0004,0003"
        );
    }
}
