//! Random faults for tests of controllers: watches that lag, connections that are reset, and responses that are lost.

use std::time::Duration;

use steadfast_apiserver::ApiServer;
use tokio::time::{Instant, sleep};

use crate::proxy::{Direction, NetworkFaults};

/// Maximum lag of a watch.
const MAX_WATCH_LAG: Duration = Duration::from_secs(5);

/// Maximum pause between two faults, in milliseconds.
const MAX_PAUSE_MILLIS: u64 = 1500;

/// Maximum time for which responses are held before they are lost, in milliseconds.
const MAX_HOLD_MILLIS: u64 = 300;

/// Injects faults into one server and its network. A seed selects the faults, so that in virtual time each run is the
/// same.
///
/// Watches lag by up to five seconds. Connections are reset, watches are ended, responses are lost after the server has
/// acted, and the server is restarted.
///
/// ```
/// # use steadfast_apiserver::ApiServer;
/// # use steadfast_testing::proxy::NetworkFaults;
/// # use steadfast_testing::{InMemory, FaultSchedule, TestError};
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<(), TestError> {
/// let server = ApiServer::builder().in_memory().start().await?;
/// let network = NetworkFaults::seeded(7);
/// let connection = InMemory { network: network.clone(), ..InMemory::default() }.connection(&server).await?;
/// // Here a controller is run on the connection.
/// let mut faults = FaultSchedule::new(7, &server, &network);
/// for _ in 0..20 {
///     faults.inject_next().await;
/// }
/// faults.end();
/// # drop(connection);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct FaultSchedule<'a> {
    server: &'a ApiServer,
    network: &'a NetworkFaults,
    state: u64,
    lag_start: Option<Instant>,
}

impl<'a> FaultSchedule<'a> {
    /// Creates the faults that `seed` selects.
    pub fn new(seed: u64, server: &'a ApiServer, network: &'a NetworkFaults) -> Self {
        // The multiplication spreads small seeds over all bits. `| 1` excludes zero, the fixed point of xorshift.
        Self { server, network, state: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1, lag_start: None }
    }

    /// Returns a random number below `bound`, for other decisions of a test that depend on the seed.
    pub fn random(&mut self, bound: u64) -> u64 {
        // xorshift64*: Vigna, "An experimental exploration of Marsaglia's xorshift generators, scrambled".
        self.state ^= self.state >> 12;
        self.state ^= self.state << 25;
        self.state ^= self.state >> 27;
        // The low bits of the product are the weakest, so the result uses the upper 31.
        (self.state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % bound.max(1)
    }

    /// Injects a fault or none, and then waits.
    pub async fn inject_next(&mut self) {
        // About half of the draws inject nothing: a controller must also have time to recover between two faults.
        match self.random(10) {
            0 | 1 => self.lag(self.lag_start.is_none()),
            2 => self.network.reset(),
            3 => self.server.faults().end_watches(),
            4 => {
                // The server executes the request, but its response is delayed and then lost. Callers cannot determine
                // whether the write happened.
                self.network.black_hole(Direction::ToClient, true);
                let hold_millis = self.random(MAX_HOLD_MILLIS);
                self.wait_millis(hold_millis).await;
                // The reset drops the held bytes.
                self.network.reset();
                self.network.black_hole(Direction::ToClient, false);
            }
            // Restarts are rarer than other faults: each one costs all clients a relist.
            5 if self.random(4) == 0 => self.server.faults().restart(),
            _ => {}
        }
        let pause = self.random(MAX_PAUSE_MILLIS);
        self.wait_millis(pause).await;
    }

    /// Ends all faults.
    pub fn end(&mut self) {
        self.lag(false);
    }

    fn lag(&mut self, on: bool) {
        self.lag_start = on.then(Instant::now);
        self.server.faults().lag(on);
    }

    /// Waits for this number of milliseconds, and ends a lag that expires in between.
    async fn wait_millis(&mut self, milliseconds: u64) {
        let pause = Duration::from_millis(milliseconds);
        // A lag must end on time even within a pause. Otherwise the caches would stay behind for longer than the
        // maximum.
        let remaining_lag = self.lag_start.map(|since| MAX_WATCH_LAG.saturating_sub(since.elapsed()));
        if let Some(remaining_lag) = remaining_lag.filter(|remaining_lag| *remaining_lag < pause) {
            sleep(remaining_lag).await;
            self.lag(false);
            sleep(pause.saturating_sub(remaining_lag)).await;
        } else {
            sleep(pause).await;
        }
    }
}
