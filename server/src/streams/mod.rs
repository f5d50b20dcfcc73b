//! Event streams of a replica: a bound on the number of streams, and a single reader of the
//! database.

mod places; // Open streams of each caller, and of the replica
mod reader; // The rows for all streams

pub use self::places::{MOST_OF_CALLER, MOST_OF_REPLICA, Place};
pub use self::reader::{Batch, Subscription, View};

use sqlx::PgPool;
use tokio::sync::watch;

use self::places::Places;
use self::reader::Hub;
use crate::error::Error;

/// The streams of a replica. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Streams {
    places: Places,
    hub: Hub,
}

impl Streams {
    /// The streams of a replica with a number of connections. Half of the connections stay for
    /// other requests, because a stream of HTTP/1.1 holds a connection.
    pub fn within(connections: usize) -> Self {
        Self {
            places: Places::of(connections / 2),
            hub: Hub::default(),
        }
    }

    /// Takes a place for a stream of the callers: a person, and the token of the request. The place
    /// is free again when the value is dropped.
    ///
    /// # Errors
    /// [`Error::TooManyStreams`] for a caller at the limit, [`Error::StreamsFull`] for a full
    /// replica.
    pub fn take(&self, callers: &[String]) -> Result<Place, Error> {
        self.places.take(callers)
    }

    /// Subscribes to the next events of a view. The first subscription starts the reader,
    /// and the reader ends after the last. `wake` makes a read happen earlier.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn subscribe(
        &self,
        pool: &PgPool,
        wake: &watch::Sender<i64>,
        view: View,
    ) -> Result<Subscription, Error> {
        self.hub.subscribe(pool, wake, view).await
    }
}
