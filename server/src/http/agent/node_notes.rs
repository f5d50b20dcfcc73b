//! Notes about a node in the headers of an outcome. An invalid header counts as absent.

use http::HeaderMap;
use jiff::Timestamp;
use muster_core::wire::headers::{KEYS_REVOKED, NODE_CLOCK};
use sqlx::PgConnection;

use crate::engine::outcomes::Reporter;
use crate::engine::revocations::ListedJob;
use crate::engine::{node_clocks, revocations};
use crate::error::Error;

/// The notes of one outcome.
#[derive(Clone, Copy, Debug)]
pub(super) struct NodeNotes {
    /// The offset of the node's clock from the server's, where muster-node worked on the node.
    clock_offset_ms: Option<i64>,
    /// The installed system refuses the certificates in the list of the order.
    keys_are_revoked: bool,
}

impl NodeNotes {
    pub(super) fn read(headers: &HeaderMap) -> Self {
        Self {
            clock_offset_ms: read_header(headers, NODE_CLOCK).and_then(|text| text.parse().ok()),
            keys_are_revoked: read_header(headers, KEYS_REVOKED) == Some("1"),
        }
    }

    /// Records the notes of a committed outcome.
    pub(super) async fn record(
        self,
        conn: &mut PgConnection,
        reporter: Reporter<'_>,
        listed: ListedJob<'_>,
        now: Timestamp,
    ) -> Result<(), Error> {
        if let Some(offset_ms) = self.clock_offset_ms {
            node_clocks::record(conn, reporter, listed.node, offset_ms, now).await?;
        }
        if self.keys_are_revoked {
            revocations::record(conn, reporter, listed, now).await?;
        }
        Ok(())
    }
}

fn read_header<'headers>(headers: &'headers HeaderMap, name: &str) -> Option<&'headers str> {
    headers.get(name)?.to_str().ok()
}
