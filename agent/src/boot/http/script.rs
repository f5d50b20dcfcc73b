//! Builds the iPXE script for a machine. The script is plain text built from values that cannot
//! contain a command.

use std::fmt::Write as _;
use std::net::Ipv4Addr;

use muster_core::values::Mac;

use crate::boot::arm::LiveImage;

/// The values needed to boot the live image.
#[derive(Clone, Copy, Debug)]
pub(super) struct LiveBoot<'a> {
    /// Address of the agent in all URLs.
    pub agent: Ipv4Addr,
    /// Port of the HTTP boot listener.
    pub port: u16,
    pub image: LiveImage,
    /// Nonce of the boot, 32 hex digits, passed to the live image.
    pub nonce: &'a str,
    /// MAC of the boot interface.
    pub mac: Mac,
}

/// The firmware of the machine, with the names of iPXE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Platform {
    PcBios,
    Efi,
}

impl Platform {
    /// Parses `${platform}` of iPXE. An unknown value is treated as UEFI, where an exit of iPXE is
    /// sufficient.
    pub(super) fn parse(text: &str) -> Self {
        if text == "pcbios" {
            Self::PcBios
        } else {
            Self::Efi
        }
    }
}

/// Returns the script for the live image. The script itself retries a failed download, because the
/// script is given out only once. After the last retry the machine boots locally.
pub(super) fn live(boot: &LiveBoot) -> String {
    let LiveBoot {
        agent,
        port,
        image,
        nonce,
        mac,
    } = boot;
    let base = format!("http://{agent}:{port}/boot/v1");
    let arguments = [
        "initrd=initrd.zst".to_owned(),
        "initrd=site.cpio".to_owned(),
        "console=tty0".to_owned(),
        "console=ttyS0,115200n8".to_owned(),
        format!("muster.url={base}"),
        format!("muster.nonce={nonce}"),
        format!("muster.mac={mac}"),
        "panic=30".to_owned(),
    ];
    let arguments: Vec<String> = arguments.iter().map(|argument| word(argument)).collect();
    let mut script = String::from(
        "#!ipxe\necho muster: booting the live image\nset attempt:int32 0\n:again\ninc attempt\n",
    );
    script.push_str("iseq ${attempt} 5 && goto failed ||\nimgfree ||\n");
    let blob = |digest: &muster_core::values::Digest| {
        word(&format!("{base}/blob/sha256/{}", digest.hex()))
    };
    let lines = [
        format!(
            "kernel --name vmlinuz {} {}",
            blob(&image.kernel),
            arguments.join(" ")
        ),
        format!("initrd --name initrd.zst {}", blob(&image.initrd)),
        format!(
            "initrd --name site.cpio {}",
            word(&format!("{base}/site.cpio"))
        ),
        "boot".to_owned(),
    ];
    for line in lines {
        writeln!(script, "{line} || goto wait").expect("writing to a string does not fail");
    }
    script.push_str(
        ":wait\necho muster: attempt ${attempt} failed\nsleep ${attempt}\ngoto again\n:failed\n",
    );
    script
        .push_str("echo muster: the live image could not be loaded; booting from the local disk\n");
    script.push_str("iseq ${platform} pcbios && sanboot --no-describe --drive 0x80 ||\nexit 1\n");
    script
}

/// Returns the script for a boot from the local disk. On UEFI an exit with an error makes the boot
/// manager continue with the next entry, while success would open the boot menu.
pub(super) fn local(platform: Platform) -> &'static str {
    match platform {
        Platform::PcBios => {
            "#!ipxe\necho muster: booting from the local disk\nsanboot --no-describe --drive 0x80 ||\nexit 1\n"
        }
        Platform::Efi => "#!ipxe\necho muster: booting from the local disk\nexit 1\n",
    }
}

/// Encodes a word of an iPXE command. iPXE cannot quote all special text (spaces, quotes, `\`, `#`,
/// `${`, and `&&` or `||` as words). All characters except URL and kernel argument characters are
/// percent-encoded. `&` is allowed only inside a word.
fn word(text: &str) -> String {
    let mut word = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' => word.push(byte.into()),
            b'-' | b'.' | b'_' | b':' | b'/' | b'=' | b',' | b'?' | b'+' | b'@' | b'~' | b'%' => {
                word.push(byte.into())
            }
            b'&' if text.len() > 2 => word.push('&'),
            _ => write!(word, "%{byte:02x}").expect("writing to a string does not fail"),
        }
    }
    word
}

#[cfg(test)]
mod tests {
    use muster_core::values::Digest;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_live_script_is_this() {
        let image = LiveImage {
            address: Ipv4Addr::new(10, 77, 0, 11),
            kernel: Digest([0xaa; 32]),
            initrd: Digest([0xbb; 32]),
        };
        let boot = LiveBoot {
            agent: Ipv4Addr::new(10, 77, 0, 1),
            port: 8090,
            image,
            nonce: "00112233445566778899aabbccddeeff",
            mac: Mac([0x52, 0x54, 0, 0, 0, 1]),
        };
        assert_eq!(live(&boot), include_str!("live.golden.ipxe"));
    }

    proptest! {
        #[test]
        fn a_word_stays_one_word_whatever_it_holds(text in ".*") {
            let word = word(&text);
            prop_assert!(word.bytes().all(|byte| byte.is_ascii_graphic() && !b"\"'\\#${}|;`<>".contains(&byte)), "{word}");
            prop_assert_ne!(word, "&&");
        }
    }
}
