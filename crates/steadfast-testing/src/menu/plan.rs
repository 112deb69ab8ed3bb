//! What a scenario is played with.

use std::time::Duration;

use steadfast::ReflectorSettings;
use steadfast::transport::Settings;
use steadfast_apiserver::{ApiServer, ApiServerBuilder};
use steadfast_contract::Terms;

/// What a scenario is played with; the defaults are those of a program that chooses nothing.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The server.
    pub server: ApiServerBuilder,
    /// The times and limits of the client's connections.
    pub transport: Settings,
    /// The times and sizes of its informers.
    pub reflector: ReflectorSettings,
    /// Whether clients reach the replicas through the faulty network over TCP too; in memory they always do.
    pub proxied: bool,
    /// How far behind the newest change a stream may run while it is called fresh: longer than two seconds only where
    /// the server holds something back that nobody can know of yet.
    pub lag: Duration,
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            server: ApiServer::builder(),
            transport: Settings::default(),
            reflector: ReflectorSettings::default(),
            proxied: false,
            lag: Terms::default().lag,
        }
    }
}
