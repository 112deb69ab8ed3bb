//! Threads that help where work needs nothing but a processor.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::blocking::Crew;

/// Who helps where much work waits that needs nothing but a processor, as decoding does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Helpers {
    /// How many may help at once, beside the one who asks; 0 where nobody does.
    pub threads: usize,
    /// How many bytes have to wait for it to be worth the while to ask for one of them.
    pub worth: usize,
}

/// What a helper does: a piece of the work at each call, until it answers that there is none.
pub type Help = Box<dyn FnMut() -> bool + Send>;

/// To wake a thread costs whoever does it about 5 µs, and the thread begins 20 to 100 µs later. Decoding so much takes 200 µs
/// and more.
const WORTH: usize = 64 * 1024;

/// So many threads at most, for all who ask together.
pub(super) struct HelpingThreads {
    crew: Crew,
    most: usize,
    busy: Arc<AtomicUsize>,
}

impl HelpingThreads {
    /// None is begun before it is needed; each ends when it has had nothing to do for a while.
    pub(super) fn new(most: usize) -> Self {
        Self { crew: Crew::named("steadfast-helper"), most, busy: Arc::default() }
    }

    pub(super) fn offered(&self) -> Helpers {
        Helpers { threads: self.most, worth: WORTH }
    }

    /// Has a thread help, unless all do already.
    pub(super) fn call(&self, mut help: Help) {
        let more = |busy| (busy < self.most).then_some(busy + 1);
        if self.busy.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_err() {
            return;
        }
        let busy = Busy(self.busy.clone());
        self.crew.run(Box::new(move || {
            let _busy = busy;
            while help() {}
        }));
    }
}

impl Drop for HelpingThreads {
    fn drop(&mut self) {
        self.crew.close();
    }
}

/// A thread that helps, until this is dropped.
struct Busy(Arc<AtomicUsize>);

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;

    use super::*;

    #[test]
    fn no_more_threads_help_than_may() {
        let helping = HelpingThreads::new(2);
        let (begun, beginnings) = mpsc::channel();
        let gates: Vec<_> = (0..3)
            .map(|number| {
                let (open, gate) = mpsc::channel::<()>();
                let begun = begun.clone();
                helping.call(Box::new(move || {
                    begun.send(number).expect("the test waits");
                    gate.recv().is_ok()
                }));
                open
            })
            .collect();
        let mut both = [beginnings.recv().expect("one helps"), beginnings.recv().expect("another helps")];
        both.sort_unstable();
        assert_eq!(both, [0, 1]);
        assert!(gates[2].send(()).is_err(), "the third is let go and not kept waiting");
        drop(gates);
        while helping.busy.load(Ordering::Relaxed) > 0 {
            thread::yield_now();
        }
        helping.call(Box::new(move || {
            begun.send(3).expect("the test waits");
            false
        }));
        assert_eq!(beginnings.recv(), Ok(3), "who has helped may help again");
    }
}
