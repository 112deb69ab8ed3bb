//! Heartbeat of an HTTP/2 connection, independent of requests.

use std::sync::Weak;
use std::time::Duration;

use h2::{Ping, PingPong};
use steadfast_core::fault_injection::inject;

use super::connection::TransportConnection;
use super::deadline::MAX_TIMER_DELAY;
use super::settings::Settings;
use super::state::Signal;
use super::stream_slot::PoolHandle;
use crate::environment::SharedEnvironment;

/// Ping interval of a busy connection, to verify that it also carries data to the server.
const BUSY_PING_INTERVAL: Duration = Duration::from_secs(30);

/// Factor of the ping timeout while other data arrives.
const BUSY_TIMEOUT_FACTOR: u32 = 4;

/// Pings the peer after each silence. Completes with the reason after the connection is dead.
pub(super) async fn beat(
    mut pings: PingPong,
    connection: &TransportConnection,
    pool_handle: &Weak<dyn PoolHandle>,
    environment: &SharedEnvironment,
    settings: &Settings,
) -> String {
    if inject!(settings.faults, Unpinged) {
        return std::future::pending().await;
    }
    let mut acknowledged_at = environment.now();
    loop {
        // Received bytes prove only one direction, so a busy connection is pinged as well.
        let due = (connection.traffic.last_received() + settings.ping_after).min(acknowledged_at + BUSY_PING_INTERVAL);
        // Received data moves `due` during the sleep, so it is computed again.
        if environment.now() < due {
            environment.sleep_until(due).await;
            continue;
        }
        match ping(&mut pings, connection, pool_handle, environment, settings.ping_timeout).await {
            Ok(()) => acknowledged_at = environment.now(),
            Err(how) => return how,
        }
    }
}

/// Sends one ping and waits for its response. After half of `timeout` without data the connection is suspect.
async fn ping(
    pings: &mut PingPong,
    connection: &TransportConnection,
    pool_handle: &Weak<dyn PoolHandle>,
    environment: &SharedEnvironment,
    timeout: Duration,
) -> Result<(), String> {
    let signal = |signal| {
        if connection.signal(signal)
            && let Some(pool_handle) = pool_handle.upgrade()
        {
            pool_handle.state_changed();
        }
    };
    let started_at = environment.now();
    let mut sent = started_at;
    let mut is_suspected = false;
    let pong = pings.ping(Ping::opaque());
    tokio::pin!(pong);
    loop {
        let alive = connection.traffic.last_received().max(sent);
        // A ping response waits behind data that the server has queued. While bytes arrive, the timeout is longer.
        let deadline = sent + timeout * BUSY_TIMEOUT_FACTOR;
        let next_check = deadline.min(alive + if is_suspected { timeout } else { timeout / 2 });
        tokio::select! {
            biased;
            pong = &mut pong => match pong {
                Ok(_) => {
                    connection.record_round_trip(environment.now().since(started_at));
                    signal(Signal::Recovered);
                    return Ok(());
                }
                // The connection has ended; its driver reports the reason.
                Err(_) => std::future::pending().await,
            },
            () = environment.sleep_until(next_check) => {}
        }
        let now = environment.now();
        if now.since(next_check) > MAX_TIMER_DELAY {
            // The process was suspended, and data that arrived in that time was not read yet.
            sent = now;
            continue;
        }
        let last_received = connection.traffic.last_received();
        if now >= deadline {
            return Err(format!(
                "no response to a ping within {} s, although data arrives",
                (timeout * BUSY_TIMEOUT_FACTOR).as_secs()
            ));
        }
        let silence = now.since(last_received.max(sent));
        if silence >= timeout {
            let silence = now.since(last_received);
            return Err(format!("silent for {:.1} s, and no response to a ping", silence.as_secs_f64()));
        }
        let is_late = silence >= timeout / 2;
        if is_late != is_suspected {
            is_suspected = is_late;
            signal(if is_late { Signal::PingOverdue } else { Signal::Recovered });
        }
    }
}
