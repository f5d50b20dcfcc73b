//! The limit of open files of the process, and the share of each listener.

use nix::sys::resource::{Resource, getrlimit, setrlimit};

use super::Bounds;
use super::places::Share;

/// The assumed limit where reading fails: the soft limit of most systems.
const ASSUMED: u64 = 1024;
/// The largest share of the public listener. More connections do not make a replica faster, and
/// each may hold 64 KiB of a request's head.
const MOST_PUBLIC: u64 = 8192;
/// The largest share of the agents' listener. An agent holds a few connections, and one for each of
/// its jobs.
const MOST_AGENTS: u64 = 4096;

/// Raises the soft limit of open files (RLIMIT_NOFILE) to the hard limit, and returns the limit.
pub fn raise_limit() -> u64 {
    let raised = getrlimit(Resource::RLIMIT_NOFILE).map(|(soft, hard)| {
        match setrlimit(Resource::RLIMIT_NOFILE, hard, hard) {
            Ok(()) => hard,
            Err(error) => {
                tracing::warn!(%error, soft, hard, "the limit of open files stays as low as it is");
                soft
            }
        }
    });
    raised.unwrap_or_else(|error| {
        tracing::warn!(%error, assumed = ASSUMED, "the limit of open files cannot be read");
        ASSUMED
    })
}

/// The bounds of both listeners. Half of the files belong to the public listener and a quarter to
/// the agents' listener, so that neither can starve the other. The rest is for the database, blobs,
/// webhooks and the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shares {
    pub public: Bounds,
    pub agents: Bounds,
}

impl Shares {
    /// The shares of a process with a limit of `files` open files.
    pub fn of(files: u64) -> Self {
        let public = (files / 2).clamp(1, MOST_PUBLIC);
        let agents = (files / 4).clamp(1, MOST_AGENTS);
        // A proxy or an office is one source, and so is a site behind network address translation.
        Self {
            public: Bounds::of(share(public, public / 4)),
            agents: Bounds::of(share(agents, agents / 2)),
        }
    }
}

fn share(most: u64, of_a_source: u64) -> Share {
    let count = |number: u64| usize::try_from(number.max(1)).unwrap_or(usize::MAX);
    Share {
        most: count(most),
        of_a_source: count(of_a_source),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_listeners_leave_files_for_everything_else() {
        for files in [64, 300, 1024, 4096, 1 << 20, u64::MAX] {
            let Shares { public, agents } = Shares::of(files);
            let taken = (public.share.most + agents.share.most) as u64;
            assert!(taken <= files / 4 * 3, "{files}: {taken}");
            for share in [public.share, agents.share] {
                assert!(0 < share.of_a_source && share.of_a_source < share.most);
            }
        }
    }

    #[test]
    fn the_limit_is_raised_to_the_hard_one() {
        let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
        assert_eq!(raise_limit(), hard);
        assert_eq!(getrlimit(Resource::RLIMIT_NOFILE).unwrap(), (hard, hard));
    }
}
