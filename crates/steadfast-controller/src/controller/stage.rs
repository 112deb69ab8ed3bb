//! How far a controller is: from its start to its end.

use std::sync::Arc;

use tokio::sync::watch;

/// The stages, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Point {
    /// Nothing is called yet.
    Starting,
    /// Calls are made.
    Working,
    /// No more calls are begun.
    Ending,
    /// Those under way are cancelled.
    Cancelled,
}

/// The stage of a controller, for all who work for it. Each clone waits for itself.
#[derive(Clone)]
pub(super) struct Stage {
    reached: Arc<watch::Sender<Point>>,
    seen: watch::Receiver<Point>,
}

impl Stage {
    pub(super) fn new() -> Self {
        let (reached, seen) = watch::channel(Point::Starting);
        Self { reached: Arc::new(reached), seen }
    }

    /// Goes on to `point`, and never back.
    pub(super) fn reach(&self, point: Point) {
        self.reached.send_if_modified(|reached| {
            let is_later = point > *reached;
            if is_later {
                *reached = point;
            }
            is_later
        });
    }

    /// Whether calls are made, or were.
    pub(super) fn is_working(&self) -> bool {
        *self.seen.borrow() >= Point::Working
    }

    /// Whether no more calls are begun.
    pub(super) fn is_ending(&self) -> bool {
        *self.seen.borrow() >= Point::Ending
    }

    /// Waits until calls may be made, or will not be.
    pub(super) async fn working(&mut self) {
        self.at(Point::Working).await;
    }

    /// Waits until no more calls are begun.
    pub(super) async fn ending(&mut self) {
        self.at(Point::Ending).await;
    }

    /// Waits until what is under way is cancelled.
    pub(super) async fn cancelled(&mut self) {
        self.at(Point::Cancelled).await;
    }

    /// Works until it is done, or no more calls are begun.
    pub(super) async fn until_ending(mut self, work: impl Future<Output = ()>) {
        tokio::select! {
            biased;
            () = self.ending() => {}
            () = work => {}
        }
    }

    async fn at(&mut self, point: Point) {
        // This holds the other end.
        drop(self.seen.wait_for(|reached| *reached >= point).await);
    }
}
