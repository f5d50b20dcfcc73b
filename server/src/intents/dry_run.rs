//! Whether a request only asks for its effect. The answer is read by the one place that commits, [`super::writing`].

tokio::task_local! {
    static ASKED: bool;
}

/// Whether the request that is being answered only asks what it would do.
pub fn asked() -> bool {
    ASKED.try_with(|asked| *asked).unwrap_or(false)
}

/// Runs a request that only asks for its effect, or that has one.
pub async fn scope<T>(asked: bool, request: impl Future<Output = T>) -> T {
    ASKED.scope(asked, request).await
}
