//! The task that sends what was recorded.

use std::future::pending;
use std::sync::Arc;

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use steadfast::environment::Instant;

use super::correlate::Next;
use super::request::sent;
use super::shared::Shared;

/// Sends what is recorded, until that is over.
pub(super) async fn send_all(shared: Arc<Shared>) {
    let mut under_way = FuturesUnordered::new();
    loop {
        let until = loop {
            match shared.next() {
                Next::Send(number, order) => under_way.push(sent(shared.connection.clone(), number, order)),
                Next::Wait(until) => break until,
                Next::Over => return,
            }
        };
        tokio::select! {
            biased;
            Some((number, answer)) = under_way.next() => shared.answered(number, answer),
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
