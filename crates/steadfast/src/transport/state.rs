//! State machine of a connection.

use std::fmt;

/// State of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ConnectionState {
    /// Being opened.
    Connecting,
    /// Accepts requests.
    Ready,
    /// A ping is overdue. The connection accepts no new request until the peer responds.
    Suspect,
    /// Accepts no new request. Requests in flight can finish.
    Draining,
    /// Closed or unusable.
    Dead,
}

/// Event of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Signal {
    /// The peer responded in the negotiated protocol.
    Established,
    /// A ping is overdue.
    PingOverdue,
    /// The peer responded after all.
    Recovered,
    /// The peer accepts no more requests, or this side sends no more.
    Retired,
    /// The connection failed or was closed.
    Lost,
}

impl ConnectionState {
    /// Returns the next state. `Dead` is final, and `Draining` never returns to an earlier state.
    pub(super) fn after(self, signal: Signal) -> Self {
        match (self, signal) {
            (Self::Dead, _) | (_, Signal::Lost) => Self::Dead,
            (Self::Draining, _) | (_, Signal::Retired) => Self::Draining,
            (Self::Connecting, Signal::Established) | (Self::Suspect, Signal::Recovered) => Self::Ready,
            (Self::Ready, Signal::PingOverdue) => Self::Suspect,
            (state, Signal::Established | Signal::PingOverdue | Signal::Recovered) => state,
        }
    }

    /// Returns true if a new request can use the connection.
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

    const SIGNALS: [Signal; 5] =
        [Signal::Established, Signal::PingOverdue, Signal::Recovered, Signal::Retired, Signal::Lost];

    /// Returns every state reachable from `from`.
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
    fn dead_or_draining_connection_accepts_no_request() {
        assert_eq!(reach(ConnectionState::Dead), [ConnectionState::Dead]);
        assert!(!reach(ConnectionState::Draining).into_iter().any(ConnectionState::accepts));
    }

    #[test]
    fn received_data_ends_suspicion() {
        let suspect = ConnectionState::Ready.after(Signal::PingOverdue);
        assert_eq!(suspect, ConnectionState::Suspect);
        assert!(!suspect.accepts());
        assert_eq!(suspect.after(Signal::Recovered), ConnectionState::Ready);
    }
}
