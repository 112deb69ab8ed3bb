//! Stored state of a partition, including states of transactions with an uncertain result.
//!
//! A transaction that returned an error may still be on the disk, for example if only the final acknowledgement failed.
//! The next transaction would then compute its changes from the wrong state. Rows that the uncertain transaction added,
//! and that were removed since, would stay in the file forever. Each state therefore has a number, its mark, which the
//! transaction writes to the partition's header in the file. The next transaction reads the mark from the file and
//! starts from the state with this mark.

use super::database::CheckpointFileError;

/// States that an informer has written to its partition, at most the last two.
#[derive(Debug)]
pub(super) struct WrittenStates<S> {
    /// State in the file; `None` if the file's state is unusable.
    written: Option<(u64, S)>,
    /// State of an uncertain transaction, which may be in the file instead.
    uncertain: Option<(u64, S)>,
    in_progress: Option<Transaction<S>>,
    /// True if the partition was erased.
    is_erased: bool,
    next_mark: u64,
}

/// A transaction in progress.
#[derive(Debug)]
struct Transaction<S> {
    /// State after the transaction; `None` if it erases the partition.
    target: Option<(u64, S)>,
    start: TransactionStart<S>,
}

#[derive(Debug)]
enum TransactionStart<S> {
    /// The transaction has not processed this partition yet.
    NotStarted,
    /// The partition had this state.
    FromState((u64, S)),
    /// The partition had no known state.
    UnknownState,
}

impl<S: Clone> WrittenStates<S> {
    /// Creates the history of a partition. `state` is the state in the file and its mark, if that state is usable.
    pub(super) fn new(state: Option<(u64, S)>) -> Self {
        let next_mark = state.as_ref().map_or(0, |(mark, _)| mark.wrapping_add(1));
        Self { written: state, uncertain: None, in_progress: None, is_erased: false, next_mark }
    }

    /// Returns the state in the file, if it is certain.
    pub(super) fn certain_state(&self) -> Option<&S> {
        self.written.as_ref().filter(|_| self.uncertain.is_none()).map(|(_, state)| state)
    }

    /// Returns true if the file's state is unusable.
    pub(super) fn is_unusable(&self) -> bool {
        self.written.is_none()
    }

    /// Returns true if the partition was erased and not written since.
    pub(super) fn is_erased(&self) -> bool {
        self.is_erased
    }

    /// Starts a transaction that writes `state`, and returns the mark of that state.
    pub(super) fn start_write(&mut self, state: S) -> u64 {
        let mark = self.next_mark;
        self.next_mark = mark.wrapping_add(1);
        self.in_progress = Some(Transaction { target: Some((mark, state)), start: TransactionStart::NotStarted });
        mark
    }

    /// Starts a transaction that erases the partition.
    pub(super) fn start_erase(&mut self) {
        self.in_progress = Some(Transaction { target: None, start: TransactionStart::NotStarted });
    }

    /// Returns the state with the mark `found`, which the transaction read from the file. Returns `None` if the
    /// transaction starts from nothing.
    ///
    /// # Errors
    ///
    /// Returns an error if no known state has this mark. The next transaction then writes the whole partition.
    pub(super) fn begin(&mut self, found: Option<u64>) -> Result<Option<S>, CheckpointFileError> {
        if self.is_unusable() {
            return Ok(None);
        }
        // The mark in the file shows whether the uncertain transaction was written.
        let known =
            [&self.written, &self.uncertain].into_iter().flatten().find(|(mark, _)| Some(*mark) == found).cloned();
        let start = known.clone().map_or(TransactionStart::UnknownState, TransactionStart::FromState);
        if let Some(transaction) = &mut self.in_progress {
            transaction.start = start;
        }
        match known {
            Some((_, state)) => Ok(Some(state)),
            None => Err(CheckpointFileError("the checkpoint contains another state than the last written one".into())),
        }
    }

    /// Ends the transaction. Its result is certain if `is_written` is true, and uncertain otherwise.
    pub(super) fn finish(&mut self, is_written: bool) {
        let Some(Transaction { target, start }) = self.in_progress.take() else { return };
        if is_written {
            self.is_erased = target.is_none();
            (self.written, self.uncertain) = (target, None);
            return;
        }
        match start {
            // The failure came before this partition, for example while the file was opened. Nothing has changed.
            TransactionStart::NotStarted => {}
            // Two states are possible: the state before the write, and the state of the write.
            TransactionStart::FromState(from) => (self.written, self.uncertain) = (Some(from), target),
            TransactionStart::UnknownState => (self.written, self.uncertain) = (None, None),
        }
    }
}
