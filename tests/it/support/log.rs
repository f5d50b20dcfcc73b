//! The log of this process, captured in memory.

use std::sync::{Arc, Mutex};

use tokio::sync::Notify;

/// The captured bytes. Clones share the bytes.
#[derive(Clone, Default)]
pub(crate) struct Log {
    bytes: Arc<Mutex<Vec<u8>>>,
    written: Arc<Notify>,
}

impl std::io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.bytes.lock().unwrap().extend_from_slice(bytes);
        self.written.notify_waiters();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Log {
    pub(crate) fn bytes(&self) -> Vec<u8> {
        self.bytes.lock().unwrap().clone()
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.bytes()).unwrap()
    }

    /// Waits until `find` returns a value. Called again after each line; the deadline is the test's.
    pub(crate) async fn wait_for<T>(&self, find: impl Fn(&str) -> Option<T>) -> T {
        loop {
            let written = self.written.notified();
            tokio::pin!(written);
            written.as_mut().enable();
            if let Some(found) = find(&self.text()) {
                return found;
            }
            written.await;
        }
    }
}
