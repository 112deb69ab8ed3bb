//! Probe for a vanished peer on connections without a kernel timeout.
//!
//! With a peer that may read slowly, the kernel timeout is disabled (`Socket::allow_slow_peer`). The kernel cannot
//! distinguish a full receive buffer from a vanished peer. Keepalive works only while no data is unacknowledged;
//! otherwise the kernel retransmits for a quarter of an hour. If data was sent and nothing received since, a new
//! connection to the peer's address is opened. The peer's kernel accepts it, even if the reading process is slow or
//! stopped.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use super::socket::Traffic;
use crate::environment::SharedEnvironment;

/// Time without received data, after data was sent, before the peer's address is dialled.
const SILENCE_BEFORE_PROBE: Duration = Duration::from_secs(10);

/// Minimum interval between successful probes. The sender of a large upload receives nothing during the upload, and the
/// server may log each probe.
const MIN_PROBE_INTERVAL: Duration = Duration::from_secs(20);

/// Timeout of one attempt. Several attempts follow one another, because packets can be lost and listeners can be busy.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(4);
const MAX_ATTEMPTS: u32 = 3;

/// Waits until the peer at `address` has vanished, and returns the evidence.
pub(super) async fn wait_until_peer_is_dead(
    traffic: &Traffic,
    address: SocketAddr,
    environment: &SharedEnvironment,
) -> String {
    let mut next_probe_at = environment.now();
    loop {
        let due = next_probe_at.max(traffic.last_received() + SILENCE_BEFORE_PROBE);
        if environment.now() < due || !traffic.awaits_response() {
            environment.sleep_until(due.max(environment.now() + SILENCE_BEFORE_PROBE / 4)).await;
            continue;
        }
        let silent_since = traffic.last_received();
        let mut last_error = String::new();
        let mut responds = false;
        for _ in 0..MAX_ATTEMPTS {
            let attempt = attempt(address, environment).await;
            // Data on the connection itself is better evidence than the probe.
            responds = attempt.is_ok() || traffic.last_received() > silent_since;
            if responds {
                break;
            }
            last_error = attempt.err().map(|error| error.to_string()).unwrap_or_default();
        }
        let now = environment.now();
        if !responds {
            let silent = now.since(silent_since).as_secs();
            return format!("no data for {silent} s, and {address} does not respond: {last_error}");
        }
        next_probe_at = now + MIN_PROBE_INTERVAL;
    }
}

/// Dials `address`. A refused connection also proves that the host is alive.
async fn attempt(address: SocketAddr, environment: &SharedEnvironment) -> io::Result<()> {
    let started_at = environment.now();
    let dialled = tokio::select! {
        biased;
        dialled = environment.dial(address) => dialled.map(drop),
        () = environment.sleep_until(started_at + ATTEMPT_TIMEOUT) => {
            Err(io::Error::new(io::ErrorKind::TimedOut, format!("no response within {} s", ATTEMPT_TIMEOUT.as_secs())))
        }
    };
    match dialled {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => Ok(()),
        Err(error) => {
            // An unreachable network fails immediately, but may recover.
            environment.sleep_until(started_at + ATTEMPT_TIMEOUT).await;
            Err(error)
        }
        Ok(()) => Ok(()),
    }
}
