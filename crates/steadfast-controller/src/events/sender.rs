//! Task that sends recorded events.

use std::future::pending;
use std::sync::Arc;

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use steadfast::environment::Instant;

use super::correlate::SenderAction;
use super::request::send;
use super::shared::Shared;

/// Sends recorded events until the recorder ends.
pub(super) async fn send_all(shared: Arc<Shared>) {
    let mut in_flight = FuturesUnordered::new();
    loop {
        let until = loop {
            match shared.next() {
                SenderAction::Send(number, order) => in_flight.push(send(shared.connection.clone(), number, order)),
                SenderAction::Wait(until) => break until,
                SenderAction::Done => return,
            }
        };
        tokio::select! {
            // Responses come first, because each response may end a pause or free a request slot.
            biased;
            Some((number, outcome)) = in_flight.next() => shared.record_outcome(number, outcome),
            () = shared.work.notified() => {}
            () = sleep(&shared, until) => {}
        }
    }
}

async fn sleep(shared: &Shared, until: Option<Instant>) {
    match until {
        Some(until) => shared.environment().sleep_until(until).await,
        None => pending().await,
    }
}
