//! Tests of the routes for nodes, through the real listener.

use http::StatusCode;
use muster_core::ids::NodeId;
use muster_core::values::Digest;
use muster_core::wire::calls::Seen;
use muster_core::wire::node::LiveReport;
use reqwest::{Client, Response};

use crate::boot::arm::BootFault;
use crate::boot::arm::tests::NONCE;
use crate::boot::tests::{Bench, HOST, MAC, armed_spec};

fn client() -> Client {
    Client::builder()
        .timeout(std::time::Duration::from_secs(20))
        .no_proxy()
        .build()
        .unwrap()
}

async fn get(bench: &Bench, path: &str) -> Response {
    client().get(bench.url(path)).send().await.unwrap()
}

async fn script(bench: &Bench, query: &str) -> String {
    let response = get(bench, &format!("ipxe?{query}")).await;
    assert_eq!(response.status(), StatusCode::OK);
    response.text().await.unwrap()
}

fn report() -> LiveReport {
    LiveReport {
        protocol: 1,
        nonce: NONCE.to_owned(),
        mac: MAC,
        host_key: "ssh-ed25519 AAAAC3Nz".to_owned(),
    }
}

async fn post_report(bench: &Bench, report: &LiveReport) -> StatusCode {
    client()
        .post(bench.url("report"))
        .json(report)
        .send()
        .await
        .unwrap()
        .status()
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_is_not_armed_boots_from_disk() {
    let mut bench = Bench::start().await;
    let bios = script(
        &bench,
        &format!("mac={MAC}&platform=pcbios&serial=S%3Cb%3E1&uuid=u"),
    )
    .await;
    assert!(
        bios.contains("sanboot --no-describe --drive 0x80"),
        "{bios}"
    );
    assert_eq!(
        bench.next_seen().await,
        (Seen::Script, "local boot: nothing is armed".to_owned())
    );
    for query in [
        "",
        "mac=%00",
        "mac=%ff&platform=efi",
        "mac=a&mac=b",
        &format!("mac={MAC}&platform=${{x}}"),
    ] {
        let text = script(&bench, query).await;
        assert!(
            text.ends_with("exit 1\n") && !text.contains("kernel"),
            "{query}: {text}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_armed_machine_boots_the_live_image_and_reports_once() {
    let mut bench = Bench::start().await;
    let mut spec = armed_spec();
    spec.kernel = bench.blobs.put_bytes(b"kernel").await.unwrap();
    let handle = bench.armed.arm(NodeId::new(), &spec).unwrap();
    let text = script(&bench, &format!("mac={MAC}&platform=efi")).await;
    let kernel = format!(
        "kernel --name vmlinuz {} ",
        bench.url(&format!("blob/sha256/{}", spec.kernel.hex()))
    );
    assert!(
        text.contains(&kernel) && text.contains(&format!("muster.nonce={NONCE} muster.mac={MAC} ")),
        "{text}"
    );
    assert_eq!(
        bench.next_seen().await,
        (Seen::Script, "armed: the live image".to_owned())
    );

    let blob = get(&bench, &format!("blob/sha256/{}", spec.kernel.hex())).await;
    assert_eq!(blob.bytes().await.unwrap().as_ref(), b"kernel");
    assert_eq!(
        bench.next_seen().await,
        (Seen::Kernel, "kernel fetched by 127.0.0.1".to_owned())
    );

    assert_eq!(post_report(&bench, &report()).await, StatusCode::NO_CONTENT);
    assert_eq!(handle.report().await, Ok(report()));
    assert_eq!(bench.next_seen().await.0, Seen::Report);
    assert_eq!(post_report(&bench, &report()).await, StatusCode::CONFLICT);
    assert_eq!(handle.fault().await, BootFault::SecondReport { from: HOST });
}

/// A restarted agent listens before its first leases. An answer for the local disk would end the
/// boot of a machine between DHCP and its script.
#[tokio::test(flavor = "multi_thread")]
async fn a_machine_asks_again_until_its_boot_is_armed() {
    let bench = Bench::start().await;
    let query = format!("ipxe?mac={MAC}&platform=efi");
    let asked_again = async |bench: &Bench| {
        let answer = get(bench, &query).await;
        assert_eq!(answer.status(), StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(answer.headers()["retry-after"], "1");
    };
    bench.armed.await_leases();
    asked_again(&bench).await;
    bench.armed.expect(&armed_spec());
    bench.armed.end_leases();
    asked_again(&bench).await;
    let other = script(&bench, "mac=52:54:00:00:00:02&platform=efi").await;
    assert!(!other.contains("kernel"), "{other}");

    let handle = bench.armed.arm(NodeId::new(), &armed_spec()).unwrap();
    let armed = script(&bench, &format!("mac={MAC}&platform=efi")).await;
    assert!(armed.contains(NONCE), "{armed}");
    drop(handle);
    let local = script(&bench, &format!("mac={MAC}&platform=efi")).await;
    assert!(!local.contains("kernel"), "{local}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_armed_script_is_given_once() {
    let mut bench = Bench::start().await;
    let handle = bench.armed.arm(NodeId::new(), &armed_spec()).unwrap();
    let query = format!("mac={MAC}&platform=efi");
    assert!(script(&bench, &query).await.contains(NONCE));
    assert!(!script(&bench, &query).await.contains(NONCE));
    assert_eq!(
        handle.report().await,
        Err(BootFault::SecondScript { from: HOST })
    );
    assert_eq!(bench.next_seen().await.0, Seen::Script);
    assert_eq!(bench.next_seen().await.0, Seen::FetchedTwice);
}

/// The boot has succeeded, and the image is written. The machine fetches a script only after a
/// restart.
#[tokio::test(flavor = "multi_thread")]
async fn a_fetch_while_the_live_image_runs_is_an_alarm() {
    let (mut bench, node) = (Bench::start().await, NodeId::new());
    let handle = bench.armed.arm(node, &armed_spec()).unwrap();
    let query = format!("mac={MAC}&platform=efi");
    assert!(script(&bench, &query).await.contains(NONCE));
    assert_eq!(bench.next_seen().await.0, Seen::Script);
    handle.hold();
    assert!(!script(&bench, &query).await.contains("kernel"));
    let (what, detail) = bench.next_seen().await;
    assert_eq!(what, Seen::FetchedTwice, "{detail}");

    bench.armed.end_live(node);
    assert!(!script(&bench, &query).await.contains("kernel"));
    assert_eq!(
        bench.next_seen().await,
        (Seen::Script, "local boot: nothing is armed".to_owned())
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn another_address_gets_no_nonce_and_burns_none() {
    let bench = Bench::start().await;
    let mut spec = armed_spec();
    spec.address = std::net::Ipv4Addr::new(127, 0, 0, 7);
    let handle = bench.armed.arm(NodeId::new(), &spec).unwrap();
    assert!(
        !script(&bench, &format!("mac={MAC}&platform=efi"))
            .await
            .contains(NONCE)
    );
    assert_eq!(post_report(&bench, &report()).await, StatusCode::FORBIDDEN);
    let pending = tokio::time::timeout(std::time::Duration::ZERO, handle.report()).await;
    assert!(pending.is_err(), "the boot still waits: {pending:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn reports_that_are_not_reports_are_refused() {
    let bench = Bench::start().await;
    let _handle = bench.armed.arm(NodeId::new(), &armed_spec()).unwrap();
    let key = |host_key: &str| LiveReport {
        host_key: host_key.to_owned(),
        ..report()
    };
    for bad in [
        key("ssh-ed25519"),
        key("ssh-ed25519 AAAA\nevil"),
        key("a b c"),
        key(&format!("ssh-rsa {}", "A".repeat(2000))),
    ] {
        assert_eq!(
            post_report(&bench, &bad).await,
            StatusCode::BAD_REQUEST,
            "{}",
            bad.host_key
        );
    }
    assert_eq!(
        post_report(
            &bench,
            &LiveReport {
                nonce: "f".repeat(32),
                ..report()
            }
        )
        .await,
        StatusCode::NOT_FOUND
    );
    let huge = client()
        .post(bench.url("report"))
        .body(vec![b' '; 1 << 20])
        .send()
        .await;
    assert!(huge.is_err() || huge.unwrap().status() == StatusCode::PAYLOAD_TOO_LARGE);
    let deep = client()
        .post(bench.url("report"))
        .body("[".repeat(10_000))
        .send()
        .await
        .unwrap();
    assert_eq!(deep.status(), StatusCode::BAD_REQUEST);
}

/// The operation is cancelled before the script, after the script, or before another boot is armed
/// for the machine.
#[tokio::test(flavor = "multi_thread")]
async fn a_machine_that_starts_after_its_boot_was_cancelled_boots_from_its_disk() {
    let bench = Bench::start().await;
    let asked = format!("mac={MAC}&platform=efi");
    for fetched in [false, true] {
        let handle = bench.armed.arm(NodeId::new(), &armed_spec()).unwrap();
        if fetched {
            assert!(script(&bench, &asked).await.contains(NONCE));
        }
        drop(handle);
        let late = script(&bench, &asked).await;
        assert!(!late.contains("kernel") && !late.contains(NONCE), "{late}");
        assert_eq!(
            post_report(&bench, &report()).await,
            StatusCode::NOT_FOUND,
            "its nonce opens nothing"
        );
    }
    let mut next = armed_spec();
    next.nonce = "9".repeat(32);
    let handle = bench.armed.arm(NodeId::new(), &next).unwrap();
    assert_eq!(
        post_report(&bench, &report()).await,
        StatusCode::NOT_FOUND,
        "nor that of the boot after it"
    );
    assert!(script(&bench, &asked).await.contains(&next.nonce));
    assert_eq!(
        post_report(
            &bench,
            &LiveReport {
                nonce: next.nonce.clone(),
                ..report()
            }
        )
        .await,
        StatusCode::NO_CONTENT
    );
    assert_eq!(handle.report().await.unwrap().nonce, next.nonce);
}

#[tokio::test(flavor = "multi_thread")]
async fn blobs_are_whole_or_in_part_and_paths_lead_nowhere() {
    let bench = Bench::start().await;
    let digest = bench.blobs.put_bytes(b"0123456789").await.unwrap();
    let url = bench.url(&format!("blob/sha256/{}", digest.hex()));
    let part = client()
        .get(&url)
        .header("range", "bytes=3-5")
        .send()
        .await
        .unwrap();
    assert_eq!(
        (
            part.status(),
            part.headers()["content-range"].to_str().unwrap()
        ),
        (StatusCode::PARTIAL_CONTENT, "bytes 3-5/10")
    );
    assert_eq!(part.text().await.unwrap(), "345");
    let beyond = client()
        .get(&url)
        .header("range", "bytes=10-")
        .send()
        .await
        .unwrap();
    assert_eq!(
        (
            beyond.status(),
            beyond.headers()["content-range"].to_str().unwrap()
        ),
        (StatusCode::RANGE_NOT_SATISFIABLE, "bytes */10")
    );
    let changed = client()
        .get(&url)
        .header("range", "bytes=3-5")
        .header("if-range", "\"other\"")
        .send()
        .await
        .unwrap();
    assert_eq!(changed.text().await.unwrap(), "0123456789");
    let head = client().head(&url).send().await.unwrap();
    assert_eq!(head.headers()["content-length"], "10");
    crate::blobs::tests::damage(&bench.blobs.path(digest), b"0123456780");
    assert_eq!(
        client().get(&url).send().await.unwrap().status(),
        StatusCode::NOT_FOUND,
        "never what it is not"
    );
    for path in [
        "blob/sha256/..%2f..%2fsite.json",
        "blob/sha256/%2e%2e",
        "loader/..%2fx",
        "../../etc/passwd",
    ] {
        assert_eq!(
            get(&bench, path).await.status(),
            StatusCode::NOT_FOUND,
            "{path}"
        );
    }
    assert_eq!(
        get(&bench, &format!("blob/sha256/{}", Digest([7; 32]).hex()))
            .await
            .status(),
        StatusCode::NOT_FOUND
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bundle_gives_the_files_it_names() {
    let bench = Bench::start().await;
    let packages = bench.blobs.put_bytes(b"Package: runc\n").await.unwrap();
    let deb = bench.blobs.put_bytes(b"!<arch>").await.unwrap();
    let description =
        format!(r#"{{"files":{{"Packages":"{packages}","runc_1.1.4+ds1-1_amd64.deb":"{deb}"}}}}"#);
    let bundle = bench
        .blobs
        .put_bytes(description.as_bytes())
        .await
        .unwrap()
        .hex();
    assert_eq!(
        get(&bench, &format!("bundle/{bundle}/Packages"))
            .await
            .text()
            .await
            .unwrap(),
        "Package: runc\n"
    );
    assert_eq!(
        get(
            &bench,
            &format!("bundle/{bundle}/runc_1.1.4%2bds1-1_amd64.deb")
        )
        .await
        .text()
        .await
        .unwrap(),
        "!<arch>"
    );
    for name in ["packages", "Packages/", "..%2f..%2fsite.json", "%2e/x"] {
        assert_eq!(
            get(&bench, &format!("bundle/{bundle}/{name}"))
                .await
                .status(),
            StatusCode::NOT_FOUND,
            "{name}"
        );
    }
    assert_eq!(
        get(&bench, &format!("bundle/{}/Packages", packages.hex()))
            .await
            .status(),
        StatusCode::INTERNAL_SERVER_ERROR
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_live_image_learns_whom_to_trust_and_the_time() {
    let bench = Bench::start().await;
    let archive = get(&bench, "site.cpio").await.bytes().await.unwrap();
    let text = String::from_utf8_lossy(&archive);
    assert!(
        text.contains("etc/muster/site.json")
            && text.contains(&format!(
                "\"agent_url\": \"{}\"",
                bench.url("").trim_end_matches('/')
            )),
        "{text}"
    );
    assert_eq!(
        get(&bench, "time").await.text().await.unwrap(),
        r#"{"unix_ms":1767323045000}"#
    );
    bench.trust.send_replace(None);
    assert_eq!(
        get(&bench, "site.cpio").await.status(),
        StatusCode::SERVICE_UNAVAILABLE
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn uefi_http_boot_has_its_loader() {
    let bench = Bench::start().await;
    assert_eq!(
        get(&bench, "loader/snponly.efi")
            .await
            .bytes()
            .await
            .unwrap()
            .len(),
        1468 * 2
    );
    assert_eq!(
        get(&bench, "loader/other.efi").await.status(),
        StatusCode::NOT_FOUND
    );
}
