//! Fetches blobs into the cache of the site before a node asks for them.

use muster_core::stacks::ConvergePlan;
use muster_core::values::Digest;
use muster_core::wire::node::{Failure, FailureCode, Progress};
use serde::Deserialize;

use crate::work::context::{JobContext, failed, fatal};

/// Maximum size of a bundle description, which has a few hundred file names.
const DESCRIPTION_BYTES: u64 = 4 << 20;

/// The part of a bundle description used here. `boot::http` serves the description.
#[derive(Deserialize)]
struct Bundle {
    files: std::collections::BTreeMap<String, Digest>,
}

/// Fetches a blob from the server, unless already cached. The blob stays cached until the end of
/// the attempt.
pub(super) async fn hold_blob(context: &JobContext, digest: Digest) -> Result<(), Failure> {
    let agent = &context.agent;
    context.hold_blob(digest);
    let source = agent.server.client.blob_source();
    context
        .voice
        .waiting_for(format!("blob {digest} from the server"));
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

/// Fetches the complete bundle of a plan. For a plan without packages the node needs no bundle. The
/// URL of the repository ends with the digest of the bundle description.
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
