//! Marks a request as a dry run: the client requests only the plan. [`super::writing`] reads the
//! mark and rolls the transaction back.

tokio::task_local! {
    static ASKED: bool;
}

/// Whether the request in progress is a dry run.
pub fn asked() -> bool {
    ASKED.try_with(|asked| *asked).unwrap_or(false)
}

/// Runs a request as a dry run (`asked`), or with its effect.
pub async fn scope<T>(asked: bool, request: impl Future<Output = T>) -> T {
    ASKED.scope(asked, request).await
}
