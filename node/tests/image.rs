//! Writes images from a real HTTP server, with broken connections, to a file as the disk.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;
use std::os::unix::fs::FileExt as _;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use muster_core::facts::DiskTransport;
use muster_core::ids::{ClaimId, NodeId, OperationId, PermitId};
use muster_core::values::{Digest, Mac};
use muster_core::wire::node::{Marker, StaticNetwork, WriteImage};
use muster_node::disk::find::Target;
use muster_node::disk::{gpt, marker, stream, table};
use muster_node::job::JobContext;

const MIB: usize = 1 << 20;
/// The ESP starts at 2 MiB. The root partition follows.
const ESP_START: u64 = 2 << 20;
const DISK: u64 = 48 << 20;

/// Serves a blob with ranges. The first connections end after `cut` bytes of body, like connections
/// of a killed agent.
struct Server {
    url: String,
    requests: Arc<AtomicUsize>,
}

fn serve(blob: Vec<u8>, breaks: usize, cut: usize) -> Server {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!(
        "http://{}/boot/v1/blob/sha256/x",
        listener.local_addr().unwrap()
    );
    let requests = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&requests);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut from = None;
            for line in BufReader::new(stream.try_clone().unwrap()).lines() {
                let line = line.unwrap().to_ascii_lowercase();
                if let Some(range) = line.strip_prefix("range: bytes=") {
                    from = range.trim_end_matches('-').parse::<usize>().ok();
                }
                if line.is_empty() {
                    break;
                }
            }
            let body = &blob[from.unwrap_or(0)..];
            let status = match from {
                Some(from) => {
                    format!(
                        "206 Partial Content\r\ncontent-range: bytes {from}-{}/{}",
                        blob.len() - 1,
                        blob.len()
                    )
                }
                None => "200 OK".to_owned(),
            };
            write!(
                stream,
                "HTTP/1.1 {status}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
                body.len()
            )
            .unwrap();
            let broken = count.fetch_add(1, Ordering::SeqCst) < breaks;
            let length = if broken {
                cut.min(body.len())
            } else {
                body.len()
            };
            // The write fails when the reader closes the connection early.
            let _ = stream.write_all(&body[..length]);
        }
    });
    Server { url, requests }
}

/// A small but real disk image: GPT by sgdisk, boot code, an ESP, noise and holes.
fn raw_image() -> Vec<u8> {
    let file = tempfile::NamedTempFile::new().unwrap();
    file.as_file().set_len(16 << 20).unwrap();
    let path = file.path().to_str().unwrap();
    let made = Command::new("/usr/sbin/sgdisk")
        .args([
            "-n",
            "1:2048:4095",
            "-t",
            "1:ef02",
            "-n",
            "2:4096:12287",
            "-t",
            "2:ef00",
            "-n",
            "3:12288:0",
            path,
        ])
        .output()
        .expect("sgdisk of the package gdisk");
    assert!(
        made.status.success(),
        "{}",
        String::from_utf8_lossy(&made.stderr)
    );
    let mut raw = fs::read(path).unwrap();
    raw[..440].fill(0xbb);
    let mut seed = 1_u64;
    for byte in &mut raw[2 * MIB..3 * MIB + 100] {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        *byte = seed.to_le_bytes()[7];
    }
    raw[9 * MIB + 5] = 1;
    raw
}

struct Bench {
    disk: tempfile::NamedTempFile,
    cx: JobContext,
    sector: [u8; marker::LENGTH],
}

impl Bench {
    fn new() -> Self {
        let disk = tempfile::NamedTempFile::new().unwrap();
        // Old bytes must not stay in the holes of the image.
        disk.as_file()
            .write_all_at(&vec![0xee; usize::try_from(DISK).unwrap()], 0)
            .unwrap();
        let marker = Marker {
            protocol: 1,
            node: NodeId::new(),
            claim: ClaimId::new(),
            epoch: 1,
            image: Digest::of(b"x"),
        };
        Self {
            disk,
            cx: JobContext::foreground(Duration::from_secs(60)),
            sector: marker::encode(&marker).unwrap(),
        }
    }

    fn write(
        &self,
        image: &WriteImage,
    ) -> Result<stream::HeldBack, muster_core::wire::node::Failure> {
        stream::write(&self.cx, image, self.disk.as_file(), &self.sector)
    }

    fn bytes(&self) -> Vec<u8> {
        fs::read(self.disk.path()).unwrap()
    }

    fn is_unbootable(&self) -> bool {
        let bytes = self.bytes();
        let backup = bytes.len() - 512;
        bytes[..64 << 10].iter().all(|&byte| byte == 0) && !bytes[backup..].starts_with(b"EFI PART")
    }
}

fn image(url: &str, blob: &[u8], raw: &[u8]) -> WriteImage {
    WriteImage {
        permit: PermitId::new(),
        operation: OperationId::new(),
        claim: ClaimId::new(),
        disk_serial: "S1".into(),
        url: url.into(),
        digest: Digest::of(blob),
        size: blob.len() as u64,
        raw_digest: Digest::of(raw),
        raw_size: raw.len() as u64,
        esp_partition: 2,
        root_partition: 3,
        hostname: "n".into(),
        network: StaticNetwork {
            mac: Mac([0; 6]),
            address: "10.77.0.11/24".into(),
            gateway: None,
            dns: vec![],
            hosts: vec![],
            files: vec![],
        },
        user_ca: "ssh-ed25519 AAAA".into(),
        principal: "muster:n:1".into(),
        signed_image: None,
    }
}

fn packed(raw: &[u8]) -> Vec<u8> {
    zstd::encode_all(raw, 1).unwrap()
}

#[test]
fn broken_connections_are_resumed_and_the_disk_boots_only_at_the_end() {
    let raw = raw_image();
    let blob = packed(&raw);
    let server = serve(blob.clone(), 2, blob.len() / 4);
    let bench = Bench::new();
    let image = image(&server.url, &blob, &raw);
    let held = bench.write(&image).unwrap();
    assert_eq!(server.requests.load(Ordering::SeqCst), 3);
    assert!(bench.is_unbootable());
    assert!(
        matches!(
            marker::decode(&bench.bytes()[64 << 10..]),
            marker::Found::Marker(_)
        ),
        "marked from the first write on"
    );
    let esp = usize::try_from(ESP_START).unwrap();
    assert_eq!(bench.bytes()[esp..esp + MIB], vec![0; MIB]);
    assert_eq!(
        bench.bytes()[3 * MIB..raw.len()],
        raw[3 * MIB..],
        "holes are zeros, whatever was there before"
    );

    let disk = File::options()
        .read(true)
        .write(true)
        .open(bench.disk.path())
        .unwrap();
    table::place(&disk, &held, &bench.sector).unwrap();
    let target = Target {
        name: "d".into(),
        serial: "S1".into(),
        path: bench.disk.path().into(),
        size: DISK,
        transport: DiskTransport::Other,
    };
    table::grow(&bench.cx, &target, image.root_partition).unwrap();
    let grown = bench.bytes();
    assert_eq!(grown[..2], [0xcd, 0x18], "a BIOS goes on to the next disk");
    assert_eq!(gpt::start_of(&grown, 2), Some(ESP_START));
    let last = u64::from_le_bytes(grown[2 * 512 + 2 * 128 + 40..][..8].try_into().unwrap());
    assert!(
        last * 512 > DISK - (2 << 20),
        "the root partition ends at {last}"
    );

    table::commit(&disk, &held).unwrap();
    let done = bench.bytes();
    assert_eq!(done[..440], raw[..440]);
    assert_eq!(done[MIB..12288 * 512], raw[MIB..12288 * 512]);
    assert!(matches!(
        marker::decode(&done[64 << 10..]),
        marker::Found::Marker(_)
    ));
    let checked = Command::new("/usr/sbin/sgdisk")
        .arg("-v")
        .arg(bench.disk.path())
        .output()
        .unwrap();
    assert!(String::from_utf8_lossy(&checked.stdout).contains("No problems found"));
}

#[test]
fn another_image_than_promised_leaves_an_unbootable_disk() {
    let raw = raw_image();
    let blob = packed(&raw);
    let mut damaged = blob.clone();
    let middle = damaged.len() / 2;
    damaged[middle] ^= 0xff;
    let other_raw = {
        let mut raw = raw.clone();
        raw[10 * MIB] = 7;
        packed(&raw)
    };
    let noise = vec![1; 5000];
    let cases = [
        (damaged.clone(), image("", &blob, &raw), "digest_mismatch"),
        (
            other_raw.clone(),
            image("", &other_raw, &raw),
            "digest_mismatch",
        ),
        // Correct digests, but the bytes are no image.
        (noise.clone(), image("", &noise, &raw), "image_malformed"),
        (
            blob.clone(),
            WriteImage {
                raw_size: 1 << 20,
                ..image("", &blob, &raw)
            },
            "image_malformed",
        ),
        (
            blob.clone(),
            WriteImage {
                raw_size: 17 << 20,
                ..image("", &blob, &raw)
            },
            "image_malformed",
        ),
        (
            blob.clone(),
            WriteImage {
                esp_partition: 9,
                ..image("", &blob, &raw)
            },
            "image_malformed",
        ),
    ];
    for (served, image, code) in cases {
        let server = serve(served, 0, 0);
        let bench = Bench::new();
        let failure = bench
            .write(&WriteImage {
                url: server.url,
                ..image
            })
            .unwrap_err();
        assert_eq!(failure.code.as_str(), code, "{}", failure.message);
        assert!(bench.is_unbootable());
    }
}
