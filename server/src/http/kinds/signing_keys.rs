//! Signing keys.

use muster_api::kind::Kind as _;
use muster_api::signing_keys::SigningKeySpec;
use muster_core::signatures::PublicKey;
use sqlx::PgConnection;

use crate::app::App;
use crate::db;
use crate::db::objects::ObjectRow;
use crate::document::fault;
use crate::error::{Error, Fault};
use crate::http::declared::Declared;

/// The largest number of keys: each order to write a signed image lists the trusted keys.
const MOST: i64 = 64;
/// The longest text, in characters.
pub(super) const LONGEST_TEXT: usize = 1000;

impl Declared for SigningKeySpec {
    fn faults(&self) -> Vec<Fault> {
        let mut faults = Vec::new();
        if let Err(error) = self.public_key.parse::<PublicKey>() {
            let detail = error.to_string();
            faults.push(fault("/spec/public_key", "invalid_key", detail));
        }
        for (pointer, text) in [
            ("/spec/public_key", Some(&self.public_key)),
            ("/spec/description", self.description.as_ref()),
        ] {
            if text.is_some_and(|text| text.chars().count() > LONGEST_TEXT) {
                let detail = format!("At most {LONGEST_TEXT} characters.");
                faults.push(fault(pointer, "too_long", detail));
            }
        }
        faults
    }

    async fn written(_: &App, conn: &mut PgConnection, _: &ObjectRow) -> Result<(), Error> {
        match db::objects::count(conn, Self::KIND).await? > MOST {
            true => {
                let detail =
                    format!("At most {MOST} signing keys are possible: delete ended keys.");
                Err(Error::conflict("too_many", detail))
            }
            false => Ok(()),
        }
    }
}
