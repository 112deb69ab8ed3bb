//! Whether the other end of a connection is still there, where the kernel is not told to find out.
//!
//! On a connection whose peer may be slow to read the kernel gives up nobody (`Socket::allow_slow_peer`): it takes a peer that
//! has no room for one that has vanished. Keepalive notices a vanished peer only while nothing waits to be acknowledged; with
//! bytes on their way the kernel repeats them for a quarter of an hour. So where something was sent, and nothing was heard
//! since, the peer's address is dialled: its kernel answers, however slow a program is to read what came before.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use super::socket::Traffic;
use crate::environment::SharedEnvironment;

/// How long the peer may say nothing after something was sent before its address is dialled.
const SILENCE: Duration = Duration::from_secs(10);

/// Where its address answers it is dialled again after this time at the earliest: whoever uploads something hears nothing for
/// as long as that takes, and a server may log each of these connections.
const AGAIN: Duration = Duration::from_secs(20);

/// How long an attempt may take, and how many there are: packets are lost, and listeners busy.
const PATIENCE: Duration = Duration::from_secs(4);
const ATTEMPTS: u32 = 3;

/// Ready once the peer at `address` has vanished; tells how that was found out.
pub(super) async fn vanished(traffic: &Traffic, address: SocketAddr, environment: &SharedEnvironment) -> String {
    let mut earliest = environment.now();
    loop {
        let due = earliest.max(traffic.heard() + SILENCE);
        if environment.now() < due || !traffic.awaits_an_answer() {
            environment.sleep_until(due.max(environment.now() + SILENCE / 4)).await;
            continue;
        }
        let silent_since = traffic.heard();
        let mut said = String::new();
        let mut answers = false;
        for _ in 0..ATTEMPTS {
            let attempt = attempt(address, environment).await;
            answers = attempt.is_ok() || traffic.heard() > silent_since;
            if answers {
                break;
            }
            said = attempt.err().map(|error| error.to_string()).unwrap_or_default();
        }
        let now = environment.now();
        if !answers {
            let silent = now.since(silent_since).as_secs();
            return format!("nothing was heard for {silent} s, and nobody is at {address} any more: {said}");
        }
        earliest = now + AGAIN;
    }
}

/// Whether somebody is at `address`; that nobody listens there any more is said by somebody, too.
async fn attempt(address: SocketAddr, environment: &SharedEnvironment) -> io::Result<()> {
    let begun = environment.now();
    let dialled = tokio::select! {
        biased;
        dialled = environment.dial(address) => dialled.map(drop),
        () = environment.sleep_until(begun + PATIENCE) => {
            Err(io::Error::new(io::ErrorKind::TimedOut, format!("no answer within {} s", PATIENCE.as_secs())))
        }
    };
    match dialled {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => Ok(()),
        Err(error) => {
            // A network that is not there says so at once: it may come back.
            environment.sleep_until(begun + PATIENCE).await;
            Err(error)
        }
        Ok(()) => Ok(()),
    }
}
