//! The settings of a scenario.

use std::time::Duration;

use steadfast::ReflectorSettings;
use steadfast::transport::Settings;
use steadfast_apiserver::{ApiServer, ApiServerBuilder};
use steadfast_contract::Bounds;

/// Settings of a scenario. The defaults equal those of a program that changes no setting.
#[derive(Clone, Debug)]
pub struct ScenarioSettings {
    /// The server.
    pub server: ApiServerBuilder,
    /// Timeouts and limits of the client's connections.
    pub transport: Settings,
    /// Times and sizes of the informers.
    pub reflector: ReflectorSettings,
    /// True if clients over TCP reach the replicas through the faulty network. In memory, clients always do.
    pub proxied: bool,
    /// Maximum lag of a fresh stream behind the newest change. It exceeds two seconds only if the server withholds a
    /// change that no client can detect.
    pub lag: Duration,
}

impl Default for ScenarioSettings {
    fn default() -> Self {
        Self {
            server: ApiServer::builder(),
            transport: Settings::default(),
            reflector: ReflectorSettings::default(),
            proxied: false,
            lag: Bounds::default().lag,
        }
    }
}
