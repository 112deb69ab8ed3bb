//! What a scenario acts on.

use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use steadfast::Connection;
use steadfast_apiserver::ApiServer;
use tokio::time::{Instant, sleep};

use super::director::Director;
use crate::Error;

/// After so long a wait a gap that keeps caches from seeing something ends.
const PATIENCE: Duration = Duration::from_secs(60);

/// What is waited for takes this long at most, in virtual time.
const LIMIT: Duration = Duration::from_secs(3600);

/// How often is looked whether it is there.
const LOOK: Duration = Duration::from_millis(100);

/// A cluster on which a controller runs, to whoever uses it.
#[derive(Clone)]
pub struct Stage {
    pub(super) server: Arc<ApiServer>,
    pub(super) director: Arc<Director>,
    pub(super) connection: Connection,
    pub(super) quiet: Duration,
    pub(super) ignored: Arc<[String]>,
}

impl Stage {
    /// A client of a replica that is never disturbed. What it writes are points too: the controller may see it late, or not
    /// before it was written again.
    pub fn client(&self) -> Client {
        self.connection.client()
    }

    /// The server itself, to look at: what is written past its API is disturbed by nothing. Its faults are the sweep's.
    pub fn server(&self) -> &ApiServer {
        &self.server
    }

    /// Waits until nothing has been written for a while ([`Sweep::quiet`](super::Sweep::quiet)): the controller has done what
    /// it had to do, or it sees nothing, which may be what is disturbed. What the scenario needs of the controller before it
    /// goes on is better waited for by [`until`](Self::until).
    ///
    /// # Errors
    ///
    /// Where there is no end of writing within an hour of virtual time.
    pub async fn settle(&self) -> Result<(), Error> {
        let begun = Instant::now();
        let mut written = self.written();
        loop {
            sleep(self.quiet).await;
            let now = self.written();
            if now == written && !self.director.is_busy() {
                return Ok(());
            }
            if begun.elapsed() > LIMIT {
                return Err("there is no end of writing: within an hour it was not quiet once".into());
            }
            written = now;
        }
    }

    /// Waits until `reached` is true of the server; after a minute, whatever keeps caches from seeing something is over.
    ///
    /// # Errors
    ///
    /// Where it is not within an hour of virtual time; `what` is told then.
    pub async fn until(&self, what: &str, reached: impl Fn(&ApiServer) -> bool) -> Result<(), Error> {
        let begun = Instant::now();
        while !reached(&self.server) {
            if begun.elapsed() > PATIENCE {
                self.director.end_gap();
            }
            if begun.elapsed() > LIMIT {
                return Err(format!("not within an hour: {what}").into());
            }
            sleep(LOOK).await;
        }
        Ok(())
    }

    /// How much was written that counts.
    fn written(&self) -> usize {
        let counts = |plural: &str| !self.ignored.iter().any(|ignored| ignored == plural);
        self.server.history().changes.iter().filter(|change| counts(change.resource.resource())).count()
    }
}
