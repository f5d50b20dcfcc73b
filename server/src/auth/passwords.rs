//! Passwords: Argon2id with the crate's parameters (19 MiB, 2 passes: OWASP's first recommendation). Slow by design, so it runs on the
//! blocking pool, and only a few at a time: a storm of wrong passwords must not eat the server's memory.

use argon2::Argon2;
use argon2::password_hash::phc::PasswordHash;
use argon2::password_hash::{PasswordHasher as _, PasswordVerifier as _};
use muster_core::values::Secret;
use tokio::sync::Semaphore;

use crate::error::Error;

/// The longest password that is looked at, in bytes.
const LONGEST: usize = 1024;
static TURNS: Semaphore = Semaphore::const_new(2);

/// The PHC string of a password.
///
/// # Errors
/// When the system has no randomness for the salt.
pub async fn hash(password: Secret) -> Result<String, Error> {
    slowly(move || {
        let hash = Argon2::default().hash_password(password.reveal().as_bytes());
        hash.map(|hash| hash.to_string())
            .map_err(|error| Error::internal(anyhow::anyhow!("argon2: {error}")))
    })
    .await?
}

/// Whether a password is the one that was hashed. Without a hash the same work is done: an unknown name must not answer faster.
///
/// # Errors
/// When the work could not be run.
pub async fn verify(password: Secret, hash: Option<String>) -> Result<bool, Error> {
    slowly(move || {
        if password.reveal().len() > LONGEST {
            return false;
        }
        match hash.as_deref().map(PasswordHash::new) {
            Some(Ok(hash)) => Argon2::default()
                .verify_password(password.reveal().as_bytes(), &hash)
                .is_ok(),
            Some(Err(_)) | None => {
                let _same_work = Argon2::default().hash_password(password.reveal().as_bytes());
                false
            }
        }
    })
    .await
}

async fn slowly<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, Error> {
    let _turn = TURNS.acquire().await.map_err(Error::internal)?;
    tokio::task::spawn_blocking(work)
        .await
        .map_err(Error::internal)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn only_the_password_verifies() {
        let hash = hash(Secret::new("correct horse")).await.unwrap();
        assert!(hash.starts_with("$argon2id$"));
        assert!(
            verify(Secret::new("correct horse"), Some(hash.clone()))
                .await
                .unwrap()
        );
        assert!(
            !verify(Secret::new("battery staple"), Some(hash))
                .await
                .unwrap()
        );
        assert!(!verify(Secret::new("correct horse"), None).await.unwrap());
    }
}
