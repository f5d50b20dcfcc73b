//! Writes this node's own files into a generic image: name, address, host key, trusted keys, and
//! the marker. The work is done on the mounted root file system.
//!
//! Links inside the image must not lead outside of the mounted root: every file is written beside
//! its place and renamed.

use std::fmt::Write as _;
use std::net::IpAddr;
use std::path::Path;

use muster_core::network::{NetworkFile, SINGLE};
use muster_core::wire::node::{Failure, FailureCode, Marker, StaticNetwork, WriteImage};

use crate::failure::{fatal, io};
use crate::job::JobContext;
use crate::live::sshd::public_line;
use crate::{files, tool};

const HOST_KEY: &str = "etc/ssh/ssh_host_ed25519_key";

/// Writes the node's own files and returns the new host key as an OpenSSH line.
///
/// # Errors
/// `malformed` for a plan with content forbidden in a file, `io`, `tool_failed`.
pub fn settle(
    cx: &JobContext,
    root: &Path,
    image: &WriteImage,
    marker: &Marker,
) -> Result<String, Failure> {
    let files = networks(&image.network)?;
    let hosts = hosts(&image.hostname, &image.network)?;
    let put = |path: &str, mode: u32, text: &str| put(root, path, mode, text);
    put(
        "etc/hostname",
        0o644,
        &format!("{}\n", name(&image.hostname)?),
    )?;
    put("etc/hosts", 0o644, &hosts)?;
    for NetworkFile { path, content } in &files {
        put(path.trim_start_matches('/'), 0o644, content)?;
    }
    if !image.network.dns.is_empty() {
        let servers: String = image
            .network
            .dns
            .iter()
            .map(|server| format!("nameserver {server}\n"))
            .collect();
        put("etc/resolv.conf", 0o644, &servers)?;
    }
    put(
        "etc/ssh/muster_user_ca.pub",
        0o644,
        &format!("{}\n", line(&image.user_ca)?),
    )?;
    put(
        "etc/ssh/muster_principals",
        0o644,
        &format!("{}\n", line(&image.principal)?),
    )?;
    put("etc/ssh/sshd_config.d/10-muster.conf", 0o644, SSHD)?;
    let marker = serde_json::to_string(marker)
        .map_err(|error| fatal(FailureCode::Malformed, error.to_string()))?;
    put("etc/muster/marker.json", 0o644, &format!("{marker}\n"))?;
    host_key(cx, root)
}

/// sshd uses the first value of a setting, and Debian's configuration includes this folder at the
/// top.
const SSHD: &str = "# Written by Muster while the image was laid down.\n\
    TrustedUserCAKeys /etc/ssh/muster_user_ca.pub\n\
    AuthorizedPrincipalsFile /etc/ssh/muster_principals\n\
    PermitRootLogin prohibit-password\n\
    PasswordAuthentication no\n\
    KbdInteractiveAuthentication no\n";

fn host_key(cx: &JobContext, root: &Path) -> Result<String, Failure> {
    let ssh = parent(root, HOST_KEY)?;
    for stale in std::fs::read_dir(&ssh).map_err(io("etc/ssh"))?.flatten() {
        // A host key shared by every machine of the image proves no identity.
        if stale.file_name().to_string_lossy().starts_with("ssh_host_") {
            std::fs::remove_file(stale.path()).map_err(io("removing an old host key"))?;
        }
    }
    let key = ssh.join("ssh_host_ed25519_key");
    let path = key
        .to_str()
        .ok_or_else(|| fatal(FailureCode::Malformed, "the root's path is not text"))?;
    tool::output(
        cx,
        &[
            "ssh-keygen",
            "-q",
            "-t",
            "ed25519",
            "-N",
            "",
            "-C",
            "",
            "-f",
            path,
        ],
    )?;
    public_line(&std::fs::read_to_string(key.with_extension("pub")).map_err(io(HOST_KEY))?)
}

/// Returns the network files of the pool's network profile; without a profile, a single file with
/// the node's address.
fn networks(network: &StaticNetwork) -> Result<Vec<NetworkFile>, Failure> {
    let own = NetworkFile {
        path: SINGLE.into(),
        content: single(network)?,
    };
    match NetworkFile::problem(&network.files) {
        Some(problem) => Err(fatal(FailureCode::Malformed, problem)),
        None if network.files.is_empty() => Ok(vec![own]),
        None => Ok(network.files.clone()),
    }
}

/// Formats a networkd file with a static address, so the node boots without a DHCP server.
fn single(network: &StaticNetwork) -> Result<String, Failure> {
    let address = network.address.split_once('/').and_then(|(ip, prefix)| {
        let (ip, prefix): (IpAddr, u8) = (ip.parse().ok()?, prefix.parse().ok()?);
        (prefix <= if ip.is_ipv4() { 32 } else { 128 }).then(|| format!("{ip}/{prefix}"))
    });
    let address = address.ok_or_else(|| {
        fatal(
            FailureCode::Malformed,
            format!(
                "{:?} is not an IP address with prefix length",
                network.address
            ),
        )
    })?;
    let mut text = format!(
        "[Match]\nMACAddress={}\nType=ether\n\n[Network]\nAddress={address}\n",
        network.mac
    );
    for (key, value) in network
        .gateway
        .iter()
        .map(|ip| ("Gateway", ip))
        .chain(network.dns.iter().map(|ip| ("DNS", ip)))
    {
        let _ = writeln!(text, "{key}={}", ip(value)?);
    }
    text.push_str("DHCP=no\nIPv6AcceptRA=no\nLinkLocalAddressing=no\n");
    Ok(text)
}

fn hosts(hostname: &str, network: &StaticNetwork) -> Result<String, Failure> {
    let own = network.address.split('/').next().unwrap_or_default();
    let mut text = format!(
        "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n{}\t{}\n",
        ip(own)?,
        name(hostname)?
    );
    for (address, host) in network.hosts.iter().filter(|(_, host)| host != hostname) {
        let _ = writeln!(text, "{}\t{}", ip(address)?, name(host)?);
    }
    Ok(text)
}

fn ip(text: &str) -> Result<IpAddr, Failure> {
    text.parse().map_err(|_| {
        fatal(
            FailureCode::Malformed,
            format!("{text:?} is not an IP address"),
        )
    })
}

/// Checks a host name (RFC 1123).
fn name(text: &str) -> Result<&str, Failure> {
    let label = |label: &str| {
        let chars = label
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
        (1..=63).contains(&label.len()) && chars && !label.starts_with('-') && !label.ends_with('-')
    };
    match text.len() <= 253 && text.split('.').all(label) {
        true => Ok(text),
        false => Err(fatal(
            FailureCode::Malformed,
            format!("{text:?} is not a host name"),
        )),
    }
}

fn line(text: &str) -> Result<&str, Failure> {
    let text = text.trim();
    match !text.is_empty() && !text.chars().any(char::is_control) {
        true => Ok(text),
        false => Err(fatal(
            FailureCode::Malformed,
            "a key or principal must be one line of text",
        )),
    }
}

fn put(root: &Path, path: &str, mode: u32, text: &str) -> Result<(), Failure> {
    let folder = parent(root, path)?;
    let file = folder.join(path.rsplit('/').next().unwrap_or_default());
    files::write_durably(&file, mode, text.as_bytes()).map_err(io(path))
}

/// Returns the folder of a file, created when missing. A link on the way is refused, because a link
/// could lead into the live image's own files.
fn parent(root: &Path, path: &str) -> Result<std::path::PathBuf, Failure> {
    let mut folder = root.to_owned();
    let parts: Vec<&str> = path.split('/').collect();
    for part in &parts[..parts.len() - 1] {
        folder.push(part);
        match std::fs::symlink_metadata(&folder) {
            Ok(seen) if seen.is_dir() => {}
            Ok(_) => {
                return Err(fatal(
                    FailureCode::ImageMalformed,
                    format!("{} in the image is not a folder", folder.display()),
                ));
            }
            Err(_) => std::fs::create_dir(&folder).map_err(io(folder.display()))?,
        }
    }
    Ok(folder)
}

#[cfg(test)]
mod tests {
    use super::*;
    use muster_core::values::Mac;

    fn wanted() -> StaticNetwork {
        StaticNetwork {
            mac: Mac([0x52, 0x54, 0, 0, 0, 1]),
            address: "10.77.0.11/24".into(),
            gateway: Some("10.77.0.1".into()),
            dns: vec![],
            hosts: vec![("10.77.0.1".into(), "controller".into())],
            files: vec![],
        }
    }

    #[test]
    fn files_say_what_the_plan_says() {
        let text = single(&wanted()).unwrap();
        assert!(
            text.contains("MACAddress=52:54:00:00:00:01\n")
                && text.contains("Address=10.77.0.11/24\nGateway=10.77.0.1\n")
        );
        assert!(
            hosts("gpu-1", &wanted())
                .unwrap()
                .ends_with("10.77.0.11\tgpu-1\n10.77.0.1\tcontroller\n")
        );
    }

    #[test]
    fn files_of_a_profile_take_the_place_of_the_one_and_lie_nowhere_else() {
        let with = |path: &str, content: &str| {
            let file = NetworkFile {
                path: path.into(),
                content: content.into(),
            };
            networks(&StaticNetwork {
                files: vec![file],
                ..wanted()
            })
        };
        assert_eq!(
            networks(&wanted()).unwrap()[0].path,
            "/etc/systemd/network/10-muster.network"
        );
        let bond = "/etc/systemd/network/10-muster-bond0.netdev";
        let written = with(bond, "[NetDev]\n").unwrap();
        assert_eq!((written.len(), written[0].path.as_str()), (1, bond));
        for bad in [
            "/etc/passwd",
            "/etc/systemd/network/99-default.network",
            "/etc/systemd/network/10-muster-../../x.network",
            "/etc/systemd/network/10-muster-a.link",
            "etc/systemd/network/10-muster.network",
            "/etc/systemd/network/10-muster.netdev",
        ] {
            assert_eq!(
                with(bad, "").unwrap_err().code,
                FailureCode::Malformed,
                "{bad}"
            );
        }
        assert_eq!(with(bond, "a\0b").unwrap_err().code, FailureCode::Malformed);
    }

    #[test]
    fn nothing_slips_a_second_line_into_a_file() {
        assert!(
            single(&StaticNetwork {
                address: "10.0.0.1/24\n[Match]".into(),
                ..wanted()
            })
            .is_err()
        );
        assert!(
            single(&StaticNetwork {
                address: "10.0.0.1/33".into(),
                ..wanted()
            })
            .is_err()
        );
        assert!(
            single(&StaticNetwork {
                gateway: Some("x".into()),
                ..wanted()
            })
            .is_err()
        );
        for bad in ["", "a b", "a\nb", "-a", "a..b"] {
            assert!(hosts(bad, &wanted()).is_err(), "{bad}");
        }
        assert!(line("ssh-ed25519 A\nssh-ed25519 B").is_err());
    }

    #[test]
    fn a_link_in_the_image_leads_nowhere() {
        let (root, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        std::os::unix::fs::symlink(outside.path(), root.path().join("etc")).unwrap();
        assert_eq!(
            put(root.path(), "etc/hostname", 0o644, "x")
                .unwrap_err()
                .code,
            FailureCode::ImageMalformed
        );
    }
}
