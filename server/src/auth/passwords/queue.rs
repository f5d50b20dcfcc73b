//! Turns at slow work. A few callers run at once, and the others wait in bounded lanes.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

use super::Lane;

/// The running turns, and the waiting logins.
#[derive(Debug)]
pub(super) struct Queue {
    turns: usize,
    /// Places of each lane, in the order of service.
    waiting: [usize; 3],
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    running: usize,
    /// Lanes in the order of service.
    lanes: [VecDeque<oneshot::Sender<Turn>>; 3],
}

/// The right to do the slow work once. Dropping the turn gives the right to the next waiting
/// caller.
#[derive(Debug)]
pub struct Turn(Arc<Queue>);

impl Queue {
    pub(super) fn new(turns: usize, waiting: [usize; 3]) -> Arc<Self> {
        Arc::new(Self {
            turns,
            waiting,
            state: Mutex::default(),
        })
    }

    /// Waits for a turn. Returns `None` when the lane is full.
    pub(super) async fn turn(self: &Arc<Self>, lane: Lane) -> Option<Turn> {
        let turn = {
            let mut state = self.lock();
            if state.running < self.turns {
                state.running += 1;
                return Some(Turn(Arc::clone(self)));
            }
            let places = self.waiting[lane as usize];
            let lane = &mut state.lanes[lane as usize];
            // A disconnected caller loses the place.
            lane.retain(|place| !place.is_closed());
            if lane.len() >= places {
                return None;
            }
            let (place, turn) = oneshot::channel();
            lane.push_back(place);
            turn
        };
        turn.await.ok()
    }

    /// Returns the number of callers waiting in a lane.
    pub(super) fn count_waiting(&self, lane: Lane) -> usize {
        let state = self.lock();
        let places = state.lanes[lane as usize].iter();
        places.filter(|place| !place.is_closed()).count()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the next waiting caller. Without a waiting caller, the turn becomes free.
    fn next(&self) -> Option<oneshot::Sender<Turn>> {
        let mut state = self.lock();
        let next = state.lanes.iter_mut().find_map(VecDeque::pop_front);
        if next.is_none() {
            state.running -= 1;
        }
        next
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if let Some(place) = self.0.next() {
            // When the caller has disconnected, the unsent turn is dropped here and passes to the
            // next caller.
            place.send(Self(Arc::clone(&self.0))).ok();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::Poll;

    use futures::poll;

    use super::*;

    #[tokio::test]
    async fn a_full_lane_refuses_and_leaves_the_places_of_the_others() {
        let queue = Queue::new(1, [2; 3]);
        let running = queue.turn(Lane::Stranger).await.unwrap();
        let mut strangers = [
            Box::pin(queue.turn(Lane::Stranger)),
            Box::pin(queue.turn(Lane::Stranger)),
        ];
        for stranger in &mut strangers {
            assert!(poll!(stranger).is_pending());
        }
        assert!(
            queue.turn(Lane::Stranger).await.is_none(),
            "two wait already"
        );
        let mut source = pin!(queue.turn(Lane::Source));
        let mut browser = pin!(queue.turn(Lane::Browser));
        assert!(poll!(&mut source).is_pending());
        assert!(poll!(&mut browser).is_pending());
        drop(running);
        let Poll::Ready(Some(turn)) = poll!(&mut browser) else {
            panic!("a browser that signed in before is first");
        };
        assert!(poll!(&mut source).is_pending());
        drop(turn);
        let Poll::Ready(Some(turn)) = poll!(&mut source) else {
            panic!("then a source");
        };
        drop(turn);
        let [first, second] = strangers;
        drop(first.await);
        drop(second.await);
        assert_eq!(queue.lock().running, 0);
    }

    #[tokio::test]
    async fn a_caller_that_left_holds_neither_a_place_nor_a_turn() {
        let queue = Queue::new(1, [1; 3]);
        let running = queue.turn(Lane::Stranger).await.unwrap();
        let mut left = Box::pin(queue.turn(Lane::Stranger));
        assert!(poll!(&mut left).is_pending());
        drop(left);
        let mut waits = Box::pin(queue.turn(Lane::Stranger));
        assert!(poll!(&mut waits).is_pending(), "the place is free again");
        let mut gone = Box::pin(queue.turn(Lane::Source));
        assert!(poll!(&mut gone).is_pending());
        drop(gone);
        drop(running);
        drop(waits.await.unwrap());
        let mut next = Box::pin(queue.turn(Lane::Stranger));
        let Poll::Ready(Some(turn)) = poll!(&mut next) else {
            panic!("a turn is free");
        };
        let mut given = Box::pin(queue.turn(Lane::Stranger));
        assert!(poll!(&mut given).is_pending());
        drop(turn);
        // The turn was handed over, and nobody took it.
        drop(given);
        assert_eq!(queue.lock().running, 0);
    }
}
