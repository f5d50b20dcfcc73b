//! Has the blobs a node will ask for in the site's cache before the node asks.

use muster_core::stacks::ConvergePlan;
use muster_core::values::Digest;
use muster_core::wire::node::{Failure, FailureCode, Progress};
use serde::Deserialize;

use crate::work::context::{JobContext, failed, fatal};

/// A bundle's description is a few hundred file names.
const DESCRIPTION_BYTES: u64 = 4 << 20;

/// What of a bundle's description is needed here; `boot::http` serves it.
#[derive(Deserialize)]
struct Bundle {
    files: std::collections::BTreeMap<String, Digest>,
}

/// Fetches a blob from the server unless it is here.
pub(super) async fn hold_blob(context: &JobContext, digest: Digest) -> Result<(), Failure> {
    let agent = &context.agent;
    let source = agent.server.client.blob_source();
    context
        .voice
        .waiting_for(format!("waiting for blob {digest} from the server"));
    let told = |fetched: crate::blobs::Fetched| {
        context.voice.progress(Progress {
            at: agent.clock.now(),
            message: format!("fetching {digest} to the site"),
            done: Some(fetched.done),
            total: fetched.total,
            unit: Some("bytes".into()),
        });
    };
    let held = agent.blobs.ensure(digest, &source, told).await;
    context.voice.moving();
    match held {
        Ok(_) => Ok(()),
        Err(error) if error.retryable() => {
            Err(failed(FailureCode::BlobNotFetched, error.to_string()))
        }
        Err(error) => Err(fatal(FailureCode::BlobNotFetched, error.to_string())),
    }
}

/// Fetches a plan's bundle, whole; of a plan without packages a node asks for nothing of it. The repository's URL ends in the digest of the bundle's
/// description.
pub(super) async fn hold_bundle(context: &JobContext, plan: &ConvergePlan) -> Result<(), Failure> {
    if plan.packages.is_empty() {
        return Ok(());
    }
    let hex = plan
        .repository
        .trim_end_matches('/')
        .rsplit('/')
        .next()
        .unwrap_or_default();
    let digest: Digest = format!("sha256:{hex}").parse().map_err(|_| {
        fatal(
            FailureCode::BundleUnknown,
            format!("{:?} does not end in a bundle's digest", plan.repository),
        )
    })?;
    hold_blob(context, digest).await?;
    let unreadable = |why: String| {
        fatal(
            FailureCode::BundleUnreadable,
            format!("bundle {digest}: {why}"),
        )
    };
    let bytes = context
        .agent
        .blobs
        .read(digest, DESCRIPTION_BYTES)
        .await
        .map_err(|error| unreadable(error.to_string()))?;
    let bytes = bytes.ok_or_else(|| unreadable("removed as soon as it was there".into()))?;
    let bundle: Bundle =
        serde_json::from_slice(&bytes).map_err(|error| unreadable(error.to_string()))?;
    for file in bundle.files.values() {
        hold_blob(context, *file).await?;
    }
    Ok(())
}
