//! Bodies of requests and answers, with reports of waits and ends to the connection's pace.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::{Body, HttpBody};
use bytes::Bytes;
use hyper::body::{Frame, Incoming, SizeHint};
use tokio::time::{Instant, Sleep};

use super::pace::{Answering, Pace};

/// The body of a request. Reading fails when the peer sends no data for the `stall` time of the
/// listener's bounds.
pub(super) struct Received {
    body: Incoming,
    pace: Arc<Pace>,
    /// The end of the present wait.
    stall: Option<Pin<Box<Sleep>>>,
}

impl Received {
    pub(super) fn new(body: Incoming, pace: Arc<Pace>) -> Self {
        Self {
            body,
            pace,
            stall: None,
        }
    }
}

impl Drop for Received {
    fn drop(&mut self) {
        if self.stall.is_some() {
            self.pace.take_body();
        }
    }
}

impl HttpBody for Received {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(cx) {
            if self.stall.take().is_some() {
                self.pace.take_body();
            }
            return Poll::Ready(frame.map(|frame| frame.map_err(axum::Error::new)));
        }
        let bound = self.pace.bounds().stall;
        if self.stall.is_none() {
            self.pace.await_body();
            self.stall = Some(Box::pin(tokio::time::sleep_until(Instant::now() + bound)));
        }
        match self.stall.as_mut().map(|stall| stall.as_mut().poll(cx)) {
            Some(Poll::Ready(())) => {
                let why = format!("the client sent no data for {} s", bound.as_secs());
                Poll::Ready(Some(Err(axum::Error::new(why))))
            }
            Some(Poll::Pending) | None => Poll::Pending,
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// The body of an answer. The answer ends when the body is dropped.
pub(super) struct Sent {
    body: Body,
    answering: Answering,
}

impl Sent {
    pub(super) fn new(body: Body, answering: Answering) -> Self {
        Self { body, answering }
    }
}

impl HttpBody for Sent {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        self.answering.ask();
        let frame = Pin::new(&mut self.body).poll_frame(cx);
        if let Poll::Ready(Some(Ok(_))) = &frame {
            self.answering.give();
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
