//! Whether the peer of an HTTP/2 connection is there, also when nobody asks it anything.

use std::sync::Weak;
use std::time::Duration;

use h2::{Ping, PingPong};
use steadfast_core::breach::Breach;

use super::connection::Connection;
use super::lease::Home;
use super::settings::Settings;
use super::state::Signal;
use crate::environment::SharedEnvironment;

/// How often a connection on which bytes arrive all the time is pinged, to see that it carries ours as well.
const WHEN_BUSY: Duration = Duration::from_secs(30);

/// By how much a timer may be late before that says something of this process and nothing of the peer.
const LATENESS: Duration = Duration::from_secs(1);

/// How many times its timeout a ping is waited for while other bytes arrive.
const PATIENCE: u32 = 4;

/// Pings the peer after each silence; ready once the connection is dead, with how that was seen.
pub(super) async fn beat(
    mut pings: PingPong,
    connection: &Connection,
    home: &Weak<dyn Home>,
    environment: &SharedEnvironment,
    settings: &Settings,
) -> String {
    if settings.breaches.commit(Breach::Unpinged) {
        return std::future::pending().await;
    }
    let mut answered = environment.now();
    loop {
        let due = (connection.traffic.heard() + settings.ping_after).min(answered + WHEN_BUSY);
        if environment.now() < due {
            environment.sleep_until(due).await;
            continue;
        }
        match ping(&mut pings, connection, home, environment, settings.ping_timeout).await {
            Ok(()) => answered = environment.now(),
            Err(how) => return how,
        }
    }
}

/// Sends one ping and waits for its answer, the connection suspect after half of `timeout` without any byte.
async fn ping(
    pings: &mut PingPong,
    connection: &Connection,
    home: &Weak<dyn Home>,
    environment: &SharedEnvironment,
    timeout: Duration,
) -> Result<(), String> {
    let signal = |signal| {
        if connection.signal(signal)
            && let Some(home) = home.upgrade()
        {
            home.unsettled();
        }
    };
    let begun = environment.now();
    let mut sent = begun;
    let mut suspected = false;
    let pong = pings.ping(Ping::opaque());
    tokio::pin!(pong);
    loop {
        let alive = connection.traffic.heard().max(sent);
        let given_up = sent + timeout * PATIENCE;
        let next = given_up.min(alive + if suspected { timeout } else { timeout / 2 });
        tokio::select! {
            biased;
            pong = &mut pong => match pong {
                Ok(_) => {
                    connection.pinged(environment.now().since(begun));
                    signal(Signal::Heard);
                    return Ok(());
                }
                // The connection has ended; its driver says how.
                Err(_) => std::future::pending().await,
            },
            () = environment.sleep_until(next) => {}
        }
        let now = environment.now();
        if now.since(next) > LATENESS {
            // This process was stopped; what has come meanwhile was not read yet.
            sent = now;
            continue;
        }
        let heard = connection.traffic.heard();
        if now >= given_up {
            return Err(format!(
                "a ping was not answered within {} s, though bytes arrive",
                (timeout * PATIENCE).as_secs()
            ));
        }
        let silence = now.since(heard.max(sent));
        if silence >= timeout {
            let silence = now.since(heard);
            return Err(format!("silent for {:.1} s, and no answer to a ping", silence.as_secs_f64()));
        }
        let late = silence >= timeout / 2;
        if late != suspected {
            suspected = late;
            signal(if late { Signal::Late } else { Signal::Heard });
        }
    }
}
