//! A BMC with arbitrary answers over correct TLS: every reader ends with a value or a reason, and the values passed on can be shown.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use muster_agent::bmc::{Bmc, Bmcs, Limits};
use muster_core::ids::JobId;
use muster_core::values::Secret;
use muster_core::wire::bmc::BmcTarget;
use rustls::pki_types::PrivatePkcs8KeyDer;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio_rustls::TlsAcceptor;

type Answers = Arc<Mutex<VecDeque<(u16, Bytes)>>>;

/// A BMC on loopback for the whole run.
struct Bench {
    runtime: Runtime,
    answers: Answers,
    target: BmcTarget,
}

thread_local! {
    static BENCH: RefCell<Bench> = RefCell::new(start());
}

/// Answers in the order of the requests, separated by lines of `---`; an answer begins with three digits of status. After the last answer: 404.
pub(crate) fn run(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let answers = text.split("\n---\n").take(60).map(|answer| {
        let (status, body) = answer.split_once('\n').unwrap_or((answer, ""));
        let status = status
            .parse()
            .ok()
            .filter(|status| (200..600).contains(status))
            .unwrap_or(200);
        (status, Bytes::from(body.to_owned()))
    });
    BENCH.with_borrow(|bench| {
        *bench.answers.lock().unwrap_or_else(PoisonError::into_inner) = answers.collect();
        bench.runtime.block_on(read(&bench.target));
    });
}

/// Makes every read of the agent, and checks the shown values.
async fn read(target: &BmcTarget) {
    let bmc = Bmcs::new(limits())
        .open(target, JobId::new())
        .expect("a client");
    let shown = [
        read_system(&bmc).await,
        read_log(&bmc).await,
        read_sensors(&bmc).await,
        read_power(&bmc).await,
        read_inventory(&bmc).await,
    ];
    for text in shown.concat() {
        assert!(
            text.chars().count() <= 4000 && !text.contains(char::is_control),
            "{text:?}"
        );
    }
}

/// Limits without a pause.
fn limits() -> Limits {
    let second = Duration::from_secs(1);
    let zero = Duration::ZERO;
    Limits {
        connect: second,
        call: second,
        spacing: zero,
        poll: zero,
        settle: zero,
        ask_again: zero,
        between: zero,
        power_on: zero,
        power_off: zero,
        shutdown: zero,
        dip: zero,
        stays_off: zero,
        inventory: second,
        update: zero,
        boot: zero,
        cool_off: zero,
        cool_off_max: zero,
    }
}

async fn read_system(bmc: &Bmc) -> Vec<String> {
    match bmc.observe().await {
        Ok(view) => [
            view.uuid,
            view.serial,
            view.manufacturer,
            view.model,
            view.bios_version,
            view.health,
        ]
        .into_iter()
        .flatten()
        .collect(),
        Err(error) => vec![error.to_string()],
    }
}

async fn read_log(bmc: &Bmc) -> Vec<String> {
    match bmc.event_log(50).await {
        Ok(entries) => {
            assert!(entries.len() <= 50);
            entries
                .into_iter()
                .flat_map(|entry| [entry.id, entry.message, entry.severity.unwrap_or_default()])
                .collect()
        }
        Err(error) => vec![error.to_string()],
    }
}

async fn read_sensors(bmc: &Bmc) -> Vec<String> {
    match bmc.sensors().await {
        Ok(sensors) => {
            assert!(sensors.iter().all(|sensor| sensor.reading.is_finite()));
            sensors
                .into_iter()
                .flat_map(|sensor| [sensor.name, sensor.unit, sensor.health.unwrap_or_default()])
                .collect()
        }
        Err(error) => vec![error.to_string()],
    }
}

async fn read_power(bmc: &Bmc) -> Vec<String> {
    match bmc.power_watts().await {
        Ok(_) => Vec::new(),
        Err(error) => vec![error.to_string()],
    }
}

async fn read_inventory(bmc: &Bmc) -> Vec<String> {
    match bmc.inventory().await {
        Ok(inventory) => {
            assert!(inventory.firmware.len() <= 256 && inventory.bios.len() <= 4096);
            let firmware = inventory
                .firmware
                .into_iter()
                .flat_map(|seen| [seen.id, seen.name, seen.version]);
            let bios = inventory
                .bios
                .into_iter()
                .flat_map(|(name, value)| [name, value.to_string()]);
            firmware.chain(bios).chain(inventory.unread).collect()
        }
        Err(error) => vec![error.to_string()],
    }
}

fn start() -> Bench {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    let answers = Answers::default();
    let listener = runtime
        .block_on(TcpListener::bind("127.0.0.1:0"))
        .expect("a free port");
    let port = listener.local_addr().expect("an address").port();
    let (acceptor, queue) = (tls(), Arc::clone(&answers));
    runtime.spawn(async move {
        loop {
            let Ok((stream, _)) = listener.accept().await else {
                continue;
            };
            let (acceptor, queue) = (acceptor.clone(), Arc::clone(&queue));
            #[expect(
                clippy::disallowed_methods,
                reason = "the runtime of the bench owns each connection"
            )]
            tokio::task::spawn(async move {
                let Ok(stream) = acceptor.accept(stream).await else {
                    return;
                };
                let answer = service_fn(|_| {
                    let next = queue
                        .lock()
                        .unwrap_or_else(PoisonError::into_inner)
                        .pop_front();
                    let (status, body) = next.unwrap_or((404, Bytes::new()));
                    let mut response = http::Response::new(Body::from(body));
                    *response.status_mut() =
                        http::StatusCode::from_u16(status).expect("three digits");
                    std::future::ready(Ok::<_, Infallible>(response))
                });
                _ = hyper::server::conn::http1::Builder::new()
                    .serve_connection(TokioIo::new(stream), answer)
                    .await;
            });
        }
    });
    let address = "127.0.0.1".parse().expect("an address");
    let (user, password) = ("admin".to_owned(), Secret::new("secret"));
    Bench {
        runtime,
        answers,
        target: BmcTarget {
            address,
            port,
            user,
            password,
            certificate: None,
            system: None,
            also: None,
            machine: None,
            bmc_networks: vec!["127.0.0.0/8".parse().expect("a network")],
        },
    }
}

fn tls() -> TlsAcceptor {
    let rcgen::CertifiedKey { cert, signing_key } =
        rcgen::generate_simple_self_signed(["bmc".to_owned()]).expect("a certificate");
    let key = PrivatePkcs8KeyDer::from(signing_key.serialize_der()).into();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("TLS 1.2 and 1.3")
        .with_no_client_auth()
        .with_single_cert(vec![cert.der().clone()], key)
        .expect("a key that fits");
    TlsAcceptor::from(Arc::new(config))
}
