//! Writes what is due, in batches, in the background: whoever changes a cache does not know of it.

use std::sync::Arc;
use std::time::Duration;

use futures::future::select_all;
use steadfast_core::backoff::{Backoff, BackoffSettings};
use steadfast_core::random::Random;
use steadfast_core::reflector::Note;
use tokio::sync::{oneshot, watch};

use super::book::{Fault, Step};
use super::desk::{Attached, Desk};
use crate::environment::SharedEnvironment;

/// So long changes are waited for, to be written with the first: a transaction costs a turn of the disk, however much it has.
const BATCH: Duration = Duration::from_millis(50);

/// How patiently it is tried again after a fault.
const PATIENCE: BackoffSettings = BackoffSettings {
    first: Duration::from_millis(500),
    second: Duration::from_secs(1),
    ceiling: Duration::from_secs(30),
};

/// Has what `attached` comes to hold written, from `environment`.
pub(super) fn attach(desk: &Arc<Desk>, attached: Arc<dyn Attached>, environment: &SharedEnvironment) {
    if desk.attach(attached) {
        environment.spawn(Box::pin(run(desk.clone(), environment.clone())));
    }
}

type Followed = (Arc<dyn Attached>, watch::Receiver<u64>);

/// Runs until nobody has anything to be written any more.
async fn run(desk: Arc<Desk>, environment: SharedEnvironment) {
    let mut random = Random::new(environment.random());
    let mut backoff = Backoff::new(PATIENCE);
    let mut followed: Vec<Followed> = Vec::new();
    while let Some(newcomers) = desk.newcomers(followed.len()) {
        followed.extend(newcomers.into_iter().map(|attached| {
            let mut moved = attached.moved();
            moved.mark_changed();
            (attached, moved)
        }));
        if !followed.is_empty() {
            until_moved(&desk, &mut followed).await;
        }
        environment.sleep_until(environment.now() + BATCH).await;
        for (_, moved) in &mut followed {
            moved.mark_unchanged();
        }
        // Asked before: what is over has said all that it will.
        let over: Vec<bool> = followed.iter().map(|(attached, _)| attached.is_over()).collect();
        let written = write(&desk, &followed, &environment).await;
        let news = desk.count(&written);
        if written.is_ok() {
            backoff.reset();
            let mut over = over.into_iter();
            followed.retain(|_| over.next() == Some(false));
            continue;
        }
        if let Some(why) = news {
            tracing::warn!(checkpoint = desk.place(), %why, "what is held cannot be written; it is tried again");
            for (attached, _) in &followed {
                attached.tell(&Note::NotKept { why: why.clone() });
            }
        }
        for (_, moved) in &mut followed {
            moved.mark_changed();
        }
        environment.sleep_until(environment.now() + backoff.fail(&mut random)).await;
        // Who has ended is not waited for while nothing can be written.
        followed.retain(|(attached, _)| !attached.is_over());
    }
}

/// Waits until somebody may have something to be written.
async fn until_moved(desk: &Desk, followed: &mut [Followed]) {
    let any = select_all(followed.iter_mut().map(|(_, moved)| Box::pin(moved.changed())));
    tokio::select! {
        biased;
        () = desk.called.notified() => {}
        _ = any => {}
    }
}

/// Writes all that is due, where that holds up nobody.
async fn write(
    desk: &Arc<Desk>,
    followed: &[Followed],
    environment: &SharedEnvironment,
) -> Result<Option<super::book::Written>, Fault> {
    let all: Vec<_> = followed.iter().map(|(attached, _)| attached.clone()).collect();
    let (done, is_done) = oneshot::channel();
    let desk = desk.clone();
    environment.run_blocking(Box::new(move || {
        let steps = || -> Vec<Step<'_>> { all.iter().filter_map(|attached| attached.step()).collect() };
        let written = desk.book.write(steps);
        for attached in &all {
            attached.settle(written.is_ok());
        }
        drop(done.send(written));
    }));
    is_done.await.unwrap_or_else(|_| Err(Fault("the thread that wrote has ended".into())))
}
