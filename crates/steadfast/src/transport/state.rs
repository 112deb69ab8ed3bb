//! The states of a connection, and what moves it from one to another.

use std::fmt;

/// The state of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ConnectionState {
    /// Being opened.
    Connecting,
    /// Takes requests.
    Ready,
    /// A ping is unanswered for long; takes no new request until its peer is heard again.
    Suspect,
    /// Takes no new request for good; what runs on it may end.
    Draining,
    /// Closed, or as good as.
    Dead,
}

/// What happens to a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Signal {
    /// The peer has answered in the agreed protocol.
    Established,
    /// A ping is answered late.
    Late,
    /// The peer was heard after all.
    Heard,
    /// The peer takes no more requests, or we send no more.
    Retired,
    /// The connection failed or was closed.
    Lost,
}

impl ConnectionState {
    /// The state that follows; nothing leads out of `Dead`, and nothing back from `Draining`.
    pub(super) fn after(self, signal: Signal) -> Self {
        match (self, signal) {
            (Self::Dead, _) | (_, Signal::Lost) => Self::Dead,
            (Self::Draining, _) | (_, Signal::Retired) => Self::Draining,
            (Self::Connecting, Signal::Established) | (Self::Suspect, Signal::Heard) => Self::Ready,
            (Self::Ready, Signal::Late) => Self::Suspect,
            (state, Signal::Established | Signal::Late | Signal::Heard) => state,
        }
    }

    /// Whether a new request may go there.
    pub(super) fn accepts(self) -> bool {
        self == Self::Ready
    }
}

impl fmt::Display for ConnectionState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Connecting => "connecting",
            Self::Ready => "ready",
            Self::Suspect => "suspect",
            Self::Draining => "draining",
            Self::Dead => "dead",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{ConnectionState, Signal};

    const SIGNALS: [Signal; 5] = [Signal::Established, Signal::Late, Signal::Heard, Signal::Retired, Signal::Lost];

    /// Every state that `from` can ever reach.
    fn reach(from: ConnectionState) -> Vec<ConnectionState> {
        let mut seen = vec![from];
        let mut index = 0;
        while let Some(state) = seen.get(index).copied() {
            for signal in SIGNALS {
                let next = state.after(signal);
                if !seen.contains(&next) {
                    seen.push(next);
                }
            }
            index += 1;
        }
        seen
    }

    #[test]
    fn what_is_dead_or_draining_never_takes_a_request_again() {
        assert_eq!(reach(ConnectionState::Dead), [ConnectionState::Dead]);
        assert!(!reach(ConnectionState::Draining).into_iter().any(ConnectionState::accepts));
    }

    #[test]
    fn suspicion_ends_with_the_first_sign_of_life() {
        let suspect = ConnectionState::Ready.after(Signal::Late);
        assert_eq!(suspect, ConnectionState::Suspect);
        assert!(!suspect.accepts());
        assert_eq!(suspect.after(Signal::Heard), ConnectionState::Ready);
    }
}
