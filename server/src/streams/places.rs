//! Bounds of open streams: per caller, and per replica.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::error::Error;

/// The largest number of open streams of a person, or of a token.
pub const MOST_OF_CALLER: usize = 16;
/// The largest number of open streams of a replica with enough connections.
pub const MOST_OF_REPLICA: usize = 2_500;

#[derive(Clone, Debug)]
pub(super) struct Places {
    most: usize,
    open: Arc<Mutex<Open>>,
}

impl Default for Places {
    fn default() -> Self {
        Self::of(MOST_OF_REPLICA)
    }
}

#[derive(Debug, Default)]
struct Open {
    total: usize,
    of_callers: HashMap<String, usize>,
}

impl Places {
    /// Places for a number of streams, [`MOST_OF_REPLICA`] at most.
    pub(super) fn of(most: usize) -> Self {
        Self {
            most: most.clamp(1, MOST_OF_REPLICA),
            open: Arc::default(),
        }
    }

    pub(super) fn take(&self, callers: &[String]) -> Result<Place, Error> {
        let mut open = lock(&self.open);
        let is_full = |caller: &String| {
            let count = open.of_callers.get(caller);
            count.is_some_and(|count| *count >= MOST_OF_CALLER)
        };
        if callers.iter().any(is_full) {
            return Err(Error::TooManyStreams {
                most: MOST_OF_CALLER,
            });
        }
        if open.total >= self.most {
            return Err(Error::StreamsFull);
        }
        for caller in callers {
            *open.of_callers.entry(caller.clone()).or_default() += 1;
        }
        open.total += 1;
        show(open.total);
        Ok(Place {
            open: Arc::clone(&self.open),
            callers: callers.to_vec(),
        })
    }
}

/// The place of one open stream.
#[derive(Debug)]
pub struct Place {
    open: Arc<Mutex<Open>>,
    callers: Vec<String>,
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut open = lock(&self.open);
        open.total -= 1;
        show(open.total);
        for caller in &self.callers {
            if let Some(count) = open.of_callers.get_mut(caller) {
                *count -= 1;
            }
        }
        open.of_callers.retain(|_, count| *count > 0);
    }
}

fn lock(open: &Mutex<Open>) -> MutexGuard<'_, Open> {
    open.lock().unwrap_or_else(PoisonError::into_inner)
}

fn show(total: usize) {
    let total = u32::try_from(total).unwrap_or(u32::MAX);
    metrics::gauge!("muster_streams_open").set(f64::from(total));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(caller: usize) -> [String; 2] {
        [format!("user:{caller}"), format!("token {caller}")]
    }

    #[test]
    fn a_caller_has_sixteen_streams_and_gets_a_place_back() {
        let places = Places::default();
        let mut held: Vec<Place> = (0..MOST_OF_CALLER)
            .map(|_| places.take(&of(1)).unwrap())
            .collect();
        let refused = places.take(&of(1));
        assert!(matches!(refused, Err(Error::TooManyStreams { most: 16 })));
        let [person, _] = of(1);
        let refused = places.take(&[person, "token 7".to_owned()]);
        assert!(
            matches!(refused, Err(Error::TooManyStreams { .. })),
            "another token of the person"
        );
        let other = places.take(&of(2)).unwrap();
        held.pop();
        held.push(places.take(&of(1)).unwrap());
        drop((held, other));
        let open = lock(&places.open);
        assert_eq!((open.total, open.of_callers.len()), (0, 0));
    }

    #[test]
    fn a_replica_serves_a_bounded_number_of_streams() {
        let places = Places::default();
        let mut held: Vec<Place> = (0..MOST_OF_REPLICA)
            .map(|stream| places.take(&of(stream / MOST_OF_CALLER)).unwrap())
            .collect();
        let late = MOST_OF_REPLICA;
        assert!(matches!(places.take(&of(late)), Err(Error::StreamsFull)));
        held.pop();
        assert!(places.take(&of(late)).is_ok());
    }
}
