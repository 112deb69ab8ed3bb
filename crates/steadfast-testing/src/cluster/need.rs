//! What a scenario needs to be done to a server, and which servers that can be done to.

use std::env;
use std::path::PathBuf;

/// Which server the scenarios are played on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Our own, in this process, one for each scenario.
    Embedded,
    /// The real etcd and kube-apiserver that `conformance/reference` builds.
    Reference,
    /// Whatever this kubeconfig leads to.
    Other(PathBuf),
}

impl Kind {
    /// The one that `STEADFAST_SERVER` asks for: `embedded`, which is the default, `reference`, or a kubeconfig.
    pub fn asked() -> Self {
        match env::var_os("STEADFAST_SERVER") {
            Some(asked) if asked == "reference" => Self::Reference,
            Some(asked) if asked != "embedded" && !asked.is_empty() => Self::Other(asked.into()),
            _ => Self::Embedded,
        }
    }
}

/// Something done to a server beside what the network between does, which can be had in front of any.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Need {
    /// An API server is killed, and started again at its address.
    Kill,
    /// A second API server that ends in good order, and starts again at its address.
    Shutdown,
    /// An API server is frozen with its sockets open.
    Freeze,
    /// The store behind a live API server is frozen.
    FreezeStore,
    /// The store forgets every state but the present one.
    Compact,
    /// A second API server on the same store.
    Second,
    /// A second API server that stops following the store, and goes on.
    Lag,
    /// The store is put back to a backup: its versions start again lower.
    Restore,
    /// A second API server that refuses to stream lists.
    NoStreamedLists,
    /// A second API server whose lists in pages go on by what the store still has of their version.
    PagesOfTheStore,
    /// A definition is changed, which ends all watches of what it defines, those that tell a history too.
    Redefine,
}

impl Need {
    /// Why it cannot be done to a server of this kind; none where it can.
    pub const fn cannot_be_had(self, kind: &Kind) -> Option<&'static str> {
        match (kind, self) {
            (Kind::Embedded | Kind::Reference, _) => None,
            (Kind::Other(_), Self::Redefine) => Some("it ends the watch that the history comes from there"),
            (Kind::Other(_), _) => Some("a cluster that is not ours is not broken"),
        }
    }
}
