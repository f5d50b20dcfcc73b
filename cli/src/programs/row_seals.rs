//! `muster admin seal-rows`: seals tokens, people and sessions as they are.

use jiff::SignedDuration;
use muster_server::auth::seals::{adopt, window};
use muster_server::db;

use super::host::{Act, Host};

/// Seals the rows without a valid seal, prints the names, and closes the window, or opens the
/// window for a time.
///
/// # Errors
/// When the time is too long, or the database fails.
pub(super) async fn seal(host: &Host, open_for: Option<SignedDuration>) -> anyhow::Result<()> {
    let lasts = open_for.unwrap_or_default();
    anyhow::ensure!(
        !lasts.is_negative() && lasts <= window::LONGEST,
        "--open-for: at most {:#}",
        window::LONGEST
    );
    let Act { mut tx, now } = host.begin().await?;
    let master = &host.keys.master;
    let sealed = adopt::seal_rows(&mut tx, master, now).await?;
    window::set(&mut tx, master, now, now + lasts).await?;
    let event = sealed.event(now, &host.actor, "rows.adopted");
    db::events::insert(&mut tx, event).await?;
    tx.commit().await?;
    for token in &sealed.tokens {
        print_line!("token {} ({})", token.name, token.role);
    }
    for person in &sealed.people {
        print_line!("person {} ({})", person.name, person.role);
    }
    for binding in &sealed.bindings {
        print_line!(
            "role binding {} of {} ({})",
            binding.name,
            binding.subject,
            binding.role
        );
    }
    print_line!("{} are sealed as they are", sealed.describe());
    match lasts.is_positive() {
        true => print_line!("rows without a seal count until {:.0}", now + lasts),
        false => print_line!("rows without a seal are refused"),
    }
    Ok(())
}
