//! Key revocation lists of OpenSSH (PROTOCOL.krl), with the serials of certificates.

use jiff::Timestamp;

const MAGIC: &[u8; 8] = b"SSHKRL\n\0";
const FORMAT: u32 = 1;
const SECTION_CERTIFICATES: u8 = 1;
const SECTION_SERIALS: u8 = 0x20;

/// Returns a list that refuses the certificates with these serials, whichever CA signed them. The
/// serials of orders are random numbers of 63 bits, so two CAs share none.
pub fn encode(serials: &[u64], now: Timestamp) -> Vec<u8> {
    let made_at = u64::try_from(now.as_second()).unwrap_or(0).to_be_bytes();
    let mut certificates = Vec::new();
    // Without the key of a CA, the section is for every CA.
    put_string(&mut certificates, b"");
    put_string(&mut certificates, b"");
    if !serials.is_empty() {
        let list: Vec<u8> = serials
            .iter()
            .flat_map(|serial| serial.to_be_bytes())
            .collect();
        certificates.push(SECTION_SERIALS);
        put_string(&mut certificates, &list);
    }
    let mut list = MAGIC.to_vec();
    list.extend(FORMAT.to_be_bytes());
    // The version of the list, and the time of its making.
    list.extend(made_at);
    list.extend(made_at);
    // No flags.
    list.extend([0; 8]);
    put_string(&mut list, b"");
    put_string(&mut list, b"muster");
    list.push(SECTION_CERTIFICATES);
    put_string(&mut list, &certificates);
    list
}

/// Appends a string: the length as 32 bits, then the bytes. The list of an order is far shorter.
fn put_string(to: &mut Vec<u8>, bytes: &[u8]) {
    let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    to.extend(length.to_be_bytes());
    to.extend(bytes);
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::process::Command;

    use super::*;
    use crate::ssh::sshd::{PRINCIPAL, certified_as, new_key};

    /// Whether the real ssh-keygen reads the list and finds the certificate in the list.
    fn is_listed(list: &Path, certificate: &Path) -> bool {
        let asked = Command::new("ssh-keygen")
            .args(["-Q", "-f"])
            .args([list, certificate])
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&asked.stdout).into_owned();
        assert_eq!(
            said.contains("REVOKED"),
            !asked.status.success(),
            "{said}{}",
            String::from_utf8_lossy(&asked.stderr)
        );
        said.contains("REVOKED")
    }

    #[test]
    fn the_real_ssh_keygen_reads_the_list() {
        let dir = tempfile::tempdir().unwrap();
        let now = Timestamp::from_second(1_770_000_000).unwrap();
        let list = dir.path().join("list");
        let put = |serials: &[u64]| std::fs::write(&list, encode(serials, now)).unwrap();
        // Of two CAs.
        for ca in [new_key(), new_key()] {
            let certificate = |serial: u64| {
                let path = dir.path().join(format!("{serial}-cert.pub"));
                let key = certified_as(&ca, PRINCIPAL, serial);
                std::fs::write(&path, key.certificate + "\n").unwrap();
                path
            };
            let highest = i64::MAX.unsigned_abs();
            let (first, second, last) = (certificate(1), certificate(700), certificate(highest));
            put(&[]);
            for path in [&first, &second, &last] {
                assert!(!is_listed(&list, path), "{}", path.display());
            }
            put(&[highest, 1]);
            assert!(is_listed(&list, &first) && is_listed(&list, &last));
            assert!(!is_listed(&list, &second));
        }
    }

    #[test]
    fn the_real_ssh_keygen_refuses_a_cut_list() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("list");
        let whole = encode(&[7, 8], Timestamp::UNIX_EPOCH);
        let reads = |list: &[u8]| {
            std::fs::write(&path, list).unwrap();
            let read = Command::new("ssh-keygen")
                .args(["-Q", "-f"])
                .arg(&path)
                .output();
            read.unwrap().status.success()
        };
        assert!(reads(&whole));
        for cut in [0, 7, 30, whole.len() - 1] {
            assert!(!reads(&whole[..cut]), "{cut} bytes");
        }
    }
}
