//! What upsets a controller: a server whose watches lag, whose connections are cut and whose answers are lost, at random.

use std::time::Duration;

use steadfast_apiserver::ApiServer;
use tokio::time::{Instant, sleep};

use crate::proxy::{Direction, NetworkFaults};

/// No watch lags for longer.
const LONGEST_LAG: Duration = Duration::from_secs(5);

/// From one upset to the next, at most, in milliseconds.
const LONGEST_PAUSE: u64 = 1500;

/// For how long answers are held before they are lost, at most, in milliseconds.
const LONGEST_HOLD: u64 = 300;

/// Upsets of one server and the network before it, as a seed decides: the same each time, in virtual time.
///
/// Watches lag by up to five seconds; connections are reset, watches ended, answers lost after the server has acted, and
/// the server restarted.
///
/// ```
/// # use steadfast_apiserver::ApiServer;
/// # use steadfast_testing::proxy::NetworkFaults;
/// # use steadfast_testing::{InMemory, Upsets, WorldError};
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<(), WorldError> {
/// let server = ApiServer::builder().in_memory().start().await?;
/// let network = NetworkFaults::seeded(7);
/// let connection = InMemory { network: network.clone(), ..InMemory::default() }.connection(&server).await?;
/// // Here a controller is run on the connection.
/// let mut upsets = Upsets::new(7, &server, &network);
/// for _ in 0..20 {
///     upsets.another().await;
/// }
/// upsets.end();
/// # drop(connection);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Upsets<'a> {
    server: &'a ApiServer,
    network: &'a NetworkFaults,
    state: u64,
    lagging: Option<Instant>,
}

impl<'a> Upsets<'a> {
    /// Those that `seed` decides.
    pub fn new(seed: u64, server: &'a ApiServer, network: &'a NetworkFaults) -> Self {
        Self { server, network, state: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1, lagging: None }
    }

    /// A number below `bound`, for what else is to be decided by the seed.
    pub fn random(&mut self, bound: u64) -> u64 {
        // xorshift64*: Vigna, "An experimental exploration of Marsaglia's xorshift generators, scrambled".
        self.state ^= self.state >> 12;
        self.state ^= self.state << 25;
        self.state ^= self.state >> 27;
        (self.state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % bound.max(1)
    }

    /// Something happens, or nothing; then a while passes.
    pub async fn another(&mut self) {
        match self.random(10) {
            0 | 1 => self.lag(self.lagging.is_none()),
            2 => self.network.reset(),
            3 => self.server.faults().end_watches(),
            4 => {
                self.network.black_hole(Direction::ToClient, true);
                let hold = self.random(LONGEST_HOLD);
                self.pass(hold).await;
                // What was held on its way is lost.
                self.network.reset();
                self.network.black_hole(Direction::ToClient, false);
            }
            5 if self.random(4) == 0 => self.server.faults().restart(),
            _ => {}
        }
        let pause = self.random(LONGEST_PAUSE);
        self.pass(pause).await;
    }

    /// Nothing is upset any more.
    pub fn end(&mut self) {
        self.lag(false);
    }

    fn lag(&mut self, on: bool) {
        self.lagging = on.then(Instant::now);
        self.server.faults().lag(on);
    }

    /// Lets so many milliseconds pass; a lag ends in between, if it has to.
    async fn pass(&mut self, milliseconds: u64) {
        let pause = Duration::from_millis(milliseconds);
        let left = self.lagging.map(|since| LONGEST_LAG.saturating_sub(since.elapsed()));
        if let Some(left) = left.filter(|left| *left < pause) {
            sleep(left).await;
            self.lag(false);
            sleep(pause.saturating_sub(left)).await;
        } else {
            sleep(pause).await;
        }
    }
}
