//! Tests of the cache against a small server with broken connections, wrong content and a request
//! counter.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use futures::{StreamExt as _, stream};
use http::{HeaderMap, StatusCode};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use super::*;

const CONTENT: &[u8] = b"an image of an operating system";

/// A server for a single blob. Some answers break off half-way.
struct Server {
    content: Vec<u8>,
    breaks: usize,
    asked: AtomicUsize,
}

async fn answer(State(server): State<Arc<Server>>, headers: HeaderMap) -> Response {
    let count = server.asked.fetch_add(1, Ordering::SeqCst);
    if headers
        .get("authorization")
        .is_none_or(|token| token != "Bearer s3cret")
    {
        return StatusCode::UNAUTHORIZED.into_response();
    }
    let range = headers
        .get("range")
        .map(|range| range.to_str().unwrap().to_owned());
    let from: usize = range.as_deref().map_or(0, |range| {
        range
            .trim_start_matches("bytes=")
            .trim_end_matches('-')
            .parse()
            .unwrap()
    });
    let rest = server.content[from..].to_vec();
    let status = if from > 0 {
        StatusCode::PARTIAL_CONTENT
    } else {
        StatusCode::OK
    };
    let length = rest.len();
    if count < server.breaks {
        let half = Ok(bytes::Bytes::copy_from_slice(&rest[..length / 2]));
        // The error comes after the first half was sent, because the writer flushes before polling
        // for more.
        let broken = stream::iter([half]).chain(stream::once(async {
            tokio::time::sleep(Duration::from_millis(50)).await;
            Err(io::Error::other("cable out"))
        }));
        return (
            status,
            [("content-length", length.to_string())],
            Body::from_stream(broken),
        )
            .into_response();
    }
    (status, [("content-length", length.to_string())], rest).into_response()
}

struct Bench {
    cache: BlobCache,
    source: BlobSource,
    server: Arc<Server>,
    _tasks: JoinSet<()>,
    dir: tempfile::TempDir,
}

async fn bench(content: &[u8], breaks: usize) -> Bench {
    let server = Arc::new(Server {
        content: content.to_vec(),
        breaks,
        asked: AtomicUsize::new(0),
    });
    let router = Router::new()
        .route("/agent/v1/blobs/sha256/{hex}", get(answer))
        .with_state(Arc::clone(&server));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base_url = format!("http://{}", listener.local_addr().unwrap());
    let mut tasks = JoinSet::new();
    tasks.spawn(async move { axum::serve(listener, router).await.unwrap() });
    let dir = tempfile::tempdir().unwrap();
    let shown = [(
        http::header::AUTHORIZATION,
        "Bearer s3cret".parse().unwrap(),
    )]
    .into_iter()
    .collect();
    let client = reqwest::Client::builder()
        .no_proxy()
        .default_headers(shown)
        .build()
        .unwrap();
    let source = BlobSource { base_url, client };
    Bench {
        cache: BlobCache::at(dir.path()).await.unwrap(),
        source,
        server,
        _tasks: tasks,
        dir,
    }
}

fn files(bench: &Bench) -> Vec<String> {
    let entries = std::fs::read_dir(bench.dir.path().join("sha256")).unwrap();
    entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect()
}

#[tokio::test]
async fn a_blob_is_fetched_once_and_then_local() {
    let bench = bench(CONTENT, 0).await;
    let digest = Digest::of(CONTENT);
    assert!(bench.cache.open(digest).await.unwrap().is_none());
    let last = Mutex::new(Fetched::default());
    let blob = bench
        .cache
        .ensure(digest, &bench.source, |fetched| {
            *last.lock().unwrap() = fetched
        })
        .await
        .unwrap();
    assert_eq!(blob.size, CONTENT.len() as u64);
    assert_eq!(
        *last.lock().unwrap(),
        Fetched {
            done: blob.size,
            total: Some(blob.size)
        }
    );
    bench
        .cache
        .ensure(digest, &bench.source, |_| ())
        .await
        .unwrap();
    assert_eq!(bench.server.asked.load(Ordering::SeqCst), 1);
    assert_eq!(
        bench.cache.read(digest, 1024).await.unwrap().unwrap(),
        CONTENT
    );
    assert!(bench.cache.read(digest, 3).await.is_err());
}

#[tokio::test]
async fn all_who_ask_at_once_share_one_download() {
    let bench = bench(CONTENT, 0).await;
    let asks = (0..8).map(|_| {
        bench
            .cache
            .ensure(Digest::of(CONTENT), &bench.source, |_| ())
    });
    for blob in futures::future::join_all(asks).await {
        assert_eq!(blob.unwrap().size, CONTENT.len() as u64);
    }
    assert_eq!(bench.server.asked.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_download_that_breaks_off_continues_where_it_was() {
    let bench = bench(CONTENT, 2).await;
    let blob = bench
        .cache
        .ensure(Digest::of(CONTENT), &bench.source, |_| ())
        .await
        .unwrap();
    assert_eq!(blob.size, CONTENT.len() as u64);
    assert_eq!(bench.server.asked.load(Ordering::SeqCst), 3);
}

#[tokio::test]
async fn wrong_content_is_refused_and_leaves_nothing() {
    let bench = bench(b"something else", 0).await;
    let error = bench
        .cache
        .ensure(Digest::of(CONTENT), &bench.source, |_| ())
        .await
        .unwrap_err();
    assert!(
        matches!(error, FetchError::WrongContent { .. }) && !error.retryable(),
        "{error}"
    );
    assert_eq!(files(&bench), Vec::<String>::new());
}

#[tokio::test]
async fn a_refusal_is_final() {
    let mut bench = bench(CONTENT, 0).await;
    bench.source.client = reqwest::Client::builder().no_proxy().build().unwrap();
    let error = bench
        .cache
        .ensure(Digest::of(CONTENT), &bench.source, |_| ())
        .await
        .unwrap_err();
    assert!(
        matches!(
            error,
            FetchError::Refused {
                status: StatusCode::UNAUTHORIZED,
                ..
            }
        ),
        "{error}"
    );
    assert_eq!(bench.server.asked.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_local_file_becomes_a_blob() {
    let bench = bench(CONTENT, 0).await;
    let path = bench.dir.path().join("image");
    std::fs::write(&path, CONTENT).unwrap();
    assert_eq!(
        bench.cache.put_file(&path).await.unwrap(),
        Digest::of(CONTENT)
    );
    assert_eq!(files(&bench), [Digest::of(CONTENT).hex()]);
}

/// Changes a file behind the cache, with a different change time in the kernel.
pub(crate) fn damage(path: &Path, content: &[u8]) {
    let stamp = || Stamp::of(&std::fs::metadata(path).unwrap());
    let before = stamp();
    while stamp() == before {
        std::fs::write(path, content).unwrap();
    }
}

#[tokio::test]
async fn a_damaged_file_is_set_aside_and_fetched_again() {
    let bench = bench(CONTENT, 0).await;
    let digest = Digest::of(CONTENT);
    let mut flipped = CONTENT.to_vec();
    flipped[7] ^= 1;
    for (fetches, damaged) in [&flipped[..], &CONTENT[..9], b""].into_iter().enumerate() {
        bench
            .cache
            .ensure(digest, &bench.source, |_| ())
            .await
            .unwrap();
        damage(&bench.cache.path(digest), damaged);
        // A new process has not verified any file yet, and a running process detects the changed
        // file.
        for cache in [
            bench.cache.clone(),
            BlobCache::at(bench.dir.path()).await.unwrap(),
        ] {
            assert!(
                cache.open(digest).await.unwrap().is_none(),
                "never given out"
            );
        }
        let aside = bench
            .dir
            .path()
            .join(format!("sha256/.{}.damaged", digest.hex()));
        assert_eq!(
            std::fs::read(aside).unwrap(),
            damaged,
            "kept to be looked at"
        );
        assert_eq!(bench.server.asked.load(Ordering::SeqCst), fetches + 1);
    }
    bench
        .cache
        .ensure(digest, &bench.source, |_| ())
        .await
        .unwrap();
    assert_eq!(
        bench.cache.read(digest, 1024).await.unwrap().unwrap(),
        CONTENT
    );
}

#[tokio::test]
async fn a_file_is_read_once_and_again_when_somebody_doubts_it() {
    let bench = bench(CONTENT, 0).await;
    let digest = bench.cache.put_bytes(CONTENT).await.unwrap();
    let stamp = Stamp::of(&std::fs::metadata(bench.cache.path(digest)).unwrap());
    assert!(
        bench.cache.verified.holds(digest, stamp),
        "what was just written was hashed on its way"
    );
    bench.cache.doubt(digest);
    assert!(!bench.cache.verified.holds(digest, stamp));
    assert!(bench.cache.open(digest).await.unwrap().is_some());
    assert!(bench.cache.verified.holds(digest, stamp));
}

/// Fetches a blob of 8 bytes from a server of its own.
pub(crate) async fn fetch_eight(cache: &BlobCache, content: &[u8; 8]) -> Digest {
    let bench = bench(content, 0).await;
    let digest = Digest::of(content);
    cache.ensure(digest, &bench.source, |_| ()).await.unwrap();
    digest
}

#[tokio::test]
async fn the_cache_keeps_the_latest_used_and_the_held_blobs_within_its_bound() {
    let dir = tempfile::tempdir().unwrap();
    let cache = BlobCache::at(dir.path()).await.unwrap().with_bound(24);
    let held = fetch_eight(&cache, b"held by ").await;
    let old = fetch_eight(&cache, b"oldest  ").await;
    let used = fetch_eight(&cache, b"used    ").await;
    let fourth = fetch_eight(&cache, b"fourth  ").await;
    let is_cached = |digest: Digest| cache.path(digest).exists();
    // Before the first leases no blob is removed.
    assert!([held, old, used, fourth].into_iter().all(is_cached));

    cache.begin_bound();
    let guards = [cache.hold(held), cache.hold(held)];
    cache.open(old).await.unwrap().unwrap();
    cache.open(used).await.unwrap().unwrap();
    let fifth = fetch_eight(&cache, b"fifth   ").await;
    // The held blob has the oldest use, then the fourth and the reopened ones.
    assert!([held, used, fifth].into_iter().all(is_cached));
    assert!(![old, fourth].into_iter().any(is_cached));
    assert!(cache.open(old).await.unwrap().is_none());

    // Another holder still holds the blob.
    let [first, second] = guards;
    drop(first);
    fetch_eight(&cache, b"sixth   ").await;
    assert!(is_cached(held));
    drop(second);
    fetch_eight(&cache, b"seventh ").await;
    assert!(!is_cached(held));

    // Held blobs alone may exceed the bound.
    let small = cache.clone().with_bound(1);
    let kept = Digest::of(b"eighth  ");
    let guard = small.hold(kept);
    fetch_eight(&small, b"eighth  ").await;
    assert!(is_cached(kept));
    let files = std::fs::read_dir(dir.path().join("sha256")).unwrap();
    assert_eq!(files.count(), 1);
    drop(guard);
}

#[tokio::test]
async fn a_restarted_cache_removes_the_files_with_the_oldest_use_first() {
    let dir = tempfile::tempdir().unwrap();
    let cache = BlobCache::at(dir.path()).await.unwrap();
    let mut digests = Vec::new();
    for (content, minutes) in [(b"newer   ", 10), (b"older   ", 20)] {
        let digest = cache.put_bytes(content).await.unwrap();
        let at = SystemTime::now() - Duration::from_secs(60 * minutes);
        let file = std::fs::File::options()
            .write(true)
            .open(cache.path(digest))
            .unwrap();
        let times = std::fs::FileTimes::new().set_accessed(at).set_modified(at);
        file.set_times(times).unwrap();
        digests.push(digest);
    }
    let cache = BlobCache::at(dir.path()).await.unwrap().with_bound(16);
    cache.begin_bound();
    fetch_eight(&cache, b"third   ").await;
    let is_cached = digests.iter().map(|digest| cache.path(*digest).exists());
    assert_eq!(is_cached.collect::<Vec<_>>(), [true, false]);
}

#[tokio::test]
async fn a_download_makes_room_before_its_first_byte() {
    let dir = tempfile::tempdir().unwrap();
    let cache = BlobCache::at(dir.path()).await.unwrap();
    for content in [b"first   ", b"second  ", b"third   "] {
        cache.put_bytes(content).await.unwrap();
    }
    let cache = cache.with_bound(8);
    cache.begin_bound();
    let bench = bench(b"another ", 0).await;
    let missing = Digest::of(b"missing ");
    let failed = cache.ensure(missing, &bench.source, |_| ()).await;
    assert!(failed.is_err());
    let files = std::fs::read_dir(dir.path().join("sha256")).unwrap();
    assert_eq!(files.count(), 1);
}

#[test]
fn the_default_bound_leaves_other_data_its_place() {
    let dir = tempfile::tempdir().unwrap();
    let bound = default_bound(dir.path()).unwrap();
    let disk = nix::sys::statvfs::statvfs(dir.path()).unwrap();
    assert!(bound > 0 && bound <= 64 << 30);
    assert!(bound <= disk.fragment_size() * disk.blocks() / 2);
}
