//! Faults that a scenario needs, and the servers that support them.

use std::env;
use std::path::PathBuf;

/// Server that the scenarios run on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerKind {
    /// The embedded server, in this process, one for each scenario.
    Embedded,
    /// The real etcd and kube-apiserver that the programs in `conformance/reference` build.
    Reference,
    /// The cluster of this kubeconfig file.
    Other(PathBuf),
}

impl ServerKind {
    /// Returns the kind that `STEADFAST_SERVER` specifies: `embedded` (the default), `reference`, or a kubeconfig.
    pub fn from_env() -> Self {
        match env::var_os("STEADFAST_SERVER") {
            Some(kind) if kind == "reference" => Self::Reference,
            // An empty variable counts as unset, because some CI systems cannot unset a variable.
            Some(kind) if kind != "embedded" && !kind.is_empty() => Self::Other(kind.into()),
            _ => Self::Embedded,
        }
    }
}

/// Fault of a server, in addition to the network faults, which work in front of any server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum ServerFault {
    /// An API server is killed, and started again at its address.
    Kill,
    /// A second API server is shut down gracefully, and started again at its address.
    Shutdown,
    /// An API server is frozen with its sockets open.
    Freeze,
    /// The store behind a live API server is frozen.
    FreezeStore,
    /// The store is compacted to its current state.
    Compact,
    /// A second API server on the same store.
    Second,
    /// A second API server stops following the store, and continues later.
    Lag,
    /// The store is restored from a backup: its versions restart at a lower value.
    Restore,
    /// A second API server rejects streamed lists.
    NoStreamedLists,
    /// A second API server reads later pages of a list from the store, which must still have the list's version.
    UncachedPages,
    /// A definition is changed. The change ends all watches of its resource, including the watch that records the
    /// history of a cluster behind a kubeconfig.
    Redefine,
}

impl ServerFault {
    /// Returns the reason if a server of this kind does not support the fault.
    pub const fn unsupported_reason(self, kind: &ServerKind) -> Option<&'static str> {
        match (kind, self) {
            (ServerKind::Embedded | ServerKind::Reference, _) => None,
            (ServerKind::Other(_), Self::Redefine) => {
                // The history of a cluster behind a kubeconfig comes from a separate watch, which would end with the
                // others.
                Some("it ends the watch that provides the history of such a cluster")
            }
            (ServerKind::Other(_), _) => Some("faults are injected only into servers of our own"),
        }
    }
}
