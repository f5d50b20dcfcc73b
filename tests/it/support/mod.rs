//! What every test stands on: a private Postgres, a database of its own, the real router, a clock that the test moves.

pub(crate) mod agents;
pub(crate) mod fleet;
pub(crate) mod log;
pub(crate) mod postgres;
pub(crate) mod server;
pub(crate) mod wire;
