//! Which state of a part the file has.
//!
//! A transaction that failed may be on the disk all the same, as when only the last word of the disk is missing: then what comes
//! next differs from another state than was thought, and what was added by it and is gone since would stay for ever. So each
//! state has a mark in the file, and the next transaction begins with the one whose mark it finds.

use super::book::Fault;

/// The states that an informer has written of its part, the last of them.
#[derive(Debug)]
pub(super) struct Lineage<S> {
    /// What the file has; nothing where what it has is worth nothing.
    written: Option<(u64, S)>,
    /// What it may have in the place of that.
    doubtful: Option<(u64, S)>,
    on_its_way: Option<Going<S>>,
    /// Whether all of it was taken away.
    is_erased: bool,
    next: u64,
}

/// A transaction.
#[derive(Debug)]
struct Going<S> {
    /// What it leaves, if anything.
    to: Option<(u64, S)>,
    begun: Begun<S>,
}

#[derive(Debug)]
enum Begun<S> {
    /// It has not come to this part yet.
    Not,
    /// With this state.
    With((u64, S)),
    /// With nothing that is known.
    Lost,
}

impl<S: Clone> Lineage<S> {
    /// Of a part that has `state` with its mark, or nothing of worth.
    pub(super) fn new(state: Option<(u64, S)>) -> Self {
        let next = state.as_ref().map_or(0, |(mark, _)| mark.wrapping_add(1));
        Self { written: state, doubtful: None, on_its_way: None, is_erased: false, next }
    }

    /// What the file has, where there is no doubt about it.
    pub(super) fn known(&self) -> Option<&S> {
        self.written.as_ref().filter(|_| self.doubtful.is_none()).map(|(_, state)| state)
    }

    /// Whether what the file has is worth nothing.
    pub(super) fn is_anew(&self) -> bool {
        self.written.is_none()
    }

    /// Whether all of it was taken away, and nothing has been written since.
    pub(super) fn is_erased(&self) -> bool {
        self.is_erased
    }

    /// A transaction is to leave `state`; returns the mark of that.
    pub(super) fn set_out(&mut self, state: S) -> u64 {
        let mark = self.next;
        self.next = mark.wrapping_add(1);
        self.on_its_way = Some(Going { to: Some((mark, state)), begun: Begun::Not });
        mark
    }

    /// A transaction is to leave nothing.
    pub(super) fn set_out_to_erase(&mut self) {
        self.on_its_way = Some(Going { to: None, begun: Begun::Not });
    }

    /// The transaction has come to this part, and has found the state with this mark: returns that, or nothing where it begins
    /// with nothing.
    ///
    /// # Errors
    ///
    /// Where it is a state that nobody has written: the next transaction writes all of it.
    pub(super) fn begin(&mut self, found: Option<u64>) -> Result<Option<S>, Fault> {
        if self.is_anew() {
            return Ok(None);
        }
        let known =
            [&self.written, &self.doubtful].into_iter().flatten().find(|(mark, _)| Some(*mark) == found).cloned();
        let begun = known.clone().map_or(Begun::Lost, Begun::With);
        if let Some(going) = &mut self.on_its_way {
            going.begun = begun;
        }
        match known {
            Some((_, state)) => Ok(Some(state)),
            None => Err(Fault("the checkpoint has another state than was written".into())),
        }
    }

    /// The transaction is over; it `is_written`, or nobody knows.
    pub(super) fn settle(&mut self, is_written: bool) {
        let Some(Going { to, begun }) = self.on_its_way.take() else { return };
        if is_written {
            self.is_erased = to.is_none();
            (self.written, self.doubtful) = (to, None);
            return;
        }
        match begun {
            Begun::Not => {}
            Begun::With(from) => (self.written, self.doubtful) = (Some(from), to),
            Begun::Lost => (self.written, self.doubtful) = (None, None),
        }
    }
}
