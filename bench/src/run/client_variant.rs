//! The compared clients, and their start.

use std::fmt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use tokio::process::Command;

use crate::BenchError;

/// Client with certain settings.
#[derive(Clone, Copy)]
pub(super) struct ClientVariant {
    pub(super) name: &'static str,
    /// Library of the client.
    pub(super) library: Library,
    /// Resource that the client caches.
    pub(super) resource: Resource,
    arguments: &'static [&'static str],
}

/// Library of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Library {
    /// Steadfast at this commit.
    Steadfast,
    /// kube-runtime.
    Kube,
    /// client-go.
    ClientGo,
    /// Steadfast from a benchmark program of an earlier commit.
    Earlier,
    /// No library: a client that reads and discards the bytes.
    #[serde(alias = "Floor")]
    Baseline,
}

/// Resource of the objects: the same objects are served under two names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Resource {
    /// A built-in type.
    Pods,
    /// A custom resource, read as dynamic objects.
    Widgets,
}

impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Pods => "pods",
            Self::Widgets => "custom resources, dynamic",
        })
    }
}

impl fmt::Display for Library {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Steadfast => "Steadfast",
            Self::Kube => "kube-runtime",
            Self::ClientGo => "client-go",
            Self::Earlier => "Steadfast, earlier",
            Self::Baseline => "reading alone",
        })
    }
}

const fn client(
    name: &'static str,
    library: Library,
    resource: Resource,
    arguments: &'static [&'static str],
) -> ClientVariant {
    ClientVariant { name, library, resource, arguments }
}

/// All clients. A setting of a library is included if it is the library's best one in some measurement.
const CLIENTS: &[ClientVariant] = &[
    client("steadfast, JSON, streamed", Library::Steadfast, Resource::Pods, &[]),
    client("steadfast, JSON, pages", Library::Steadfast, Resource::Pods, &["--paged"]),
    client("steadfast, lazy, JSON, streamed", Library::Steadfast, Resource::Pods, &["--lazy"]),
    client("steadfast, lazy, JSON, pages", Library::Steadfast, Resource::Pods, &["--lazy", "--paged"]),
    client("steadfast, protobuf, streamed", Library::Steadfast, Resource::Pods, &["--protobuf"]),
    client("steadfast, JSON, pages, a helper", Library::Steadfast, Resource::Pods, &["--paged", "--helpers=1"]),
    client(
        "steadfast, protobuf, streamed, a helper",
        Library::Steadfast,
        Resource::Pods,
        &["--protobuf", "--helpers=1"],
    ),
    client("steadfast, lazy, protobuf, streamed", Library::Steadfast, Resource::Pods, &["--lazy", "--protobuf"]),
    client(
        "steadfast, lazy, packed, JSON, streamed",
        Library::Steadfast,
        Resource::Pods,
        &["--lazy", "--delta-compressed"],
    ),
    client(
        "steadfast, lazy, packed, protobuf, streamed",
        Library::Steadfast,
        Resource::Pods,
        &["--lazy", "--delta-compressed", "--protobuf"],
    ),
    client("kube-runtime, JSON, streamed", Library::Kube, Resource::Pods, &[]),
    client("kube-runtime, JSON, pages", Library::Kube, Resource::Pods, &["--paged"]),
    client("kube-runtime, JSON, streamed, no managedFields", Library::Kube, Resource::Pods, &["--trim"]),
    client("client-go, protobuf, streamed", Library::ClientGo, Resource::Pods, &[]),
    client("client-go, protobuf, list", Library::ClientGo, Resource::Pods, &["-paged"]),
    client("client-go, protobuf, streamed, no managedFields", Library::ClientGo, Resource::Pods, &["-trim"]),
    client("client-go, JSON, streamed", Library::ClientGo, Resource::Pods, &["-json"]),
    client("client-go, JSON, list", Library::ClientGo, Resource::Pods, &["-json", "-paged"]),
    client("reading alone, JSON, streamed", Library::Baseline, Resource::Pods, &[]),
    client("reading alone, JSON, pages", Library::Baseline, Resource::Pods, &["--paged"]),
    client("reading alone, protobuf, streamed", Library::Baseline, Resource::Pods, &["--protobuf"]),
    client("steadfast, dynamic", Library::Steadfast, Resource::Widgets, &["--resource=widgets"]),
    client("steadfast, lazy, dynamic", Library::Steadfast, Resource::Widgets, &["--resource=widgets", "--lazy"]),
    client(
        "steadfast, lazy, dynamic, pages",
        Library::Steadfast,
        Resource::Widgets,
        &["--resource=widgets", "--lazy", "--paged"],
    ),
    client("kube-runtime, dynamic", Library::Kube, Resource::Widgets, &["--resource=widgets"]),
    client("client-go, dynamic", Library::ClientGo, Resource::Widgets, &["-resource=widgets", "-paged"]),
];

/// Clients that a benchmark program of an earlier commit supports, too. They cache decoded objects.
const EARLIER_CLIENTS: &[ClientVariant] = &[
    client("steadfast earlier, JSON, streamed", Library::Earlier, Resource::Pods, &[]),
    client("steadfast earlier, JSON, pages", Library::Earlier, Resource::Pods, &["--paged"]),
];

/// Returns the clients with `name_part` in their names. Includes Steadfast of an earlier commit if
/// `has_earlier_program`. With `one_per_library`, returns only the first setting of each library for each resource.
pub(super) fn select_clients(
    name_part: Option<&str>,
    one_per_library: bool,
    has_earlier_program: bool,
) -> Vec<&'static ClientVariant> {
    let matching = CLIENTS
        .iter()
        .chain(EARLIER_CLIENTS.iter().filter(|_| has_earlier_program))
        .filter(|client| name_part.is_none_or(|part| client.name.contains(part)));
    let mut selected: Vec<&ClientVariant> = Vec::new();
    for client in matching {
        if !one_per_library
            || !selected.iter().any(|other| (other.library, other.resource) == (client.library, client.resource))
        {
            selected.push(client);
        }
    }
    selected
}

/// Returns the client with this name.
pub(super) fn client_named(name: &str) -> Result<&'static ClientVariant, BenchError> {
    CLIENTS.iter().find(|client| client.name == name).ok_or_else(|| {
        let names: Vec<&str> = CLIENTS.iter().map(|client| client.name).collect();
        format!("unknown client {name:?}; known clients: {}", names.join("; ")).into()
    })
}

/// Programs of the clients.
#[derive(Clone)]
pub(super) struct Programs {
    /// This program.
    pub(super) current: PathBuf,
    /// Program in Go.
    pub(super) go: PathBuf,
    /// Benchmark program of an earlier commit.
    pub(super) earlier: Option<PathBuf>,
}

impl Programs {
    /// Returns the program that contains the client of `library`.
    pub(super) fn path_for(&self, library: Library) -> Result<&Path, BenchError> {
        match library {
            Library::Steadfast | Library::Kube | Library::Baseline => Ok(&self.current),
            Library::ClientGo => Ok(&self.go),
            Library::Earlier => Ok(self.earlier.as_ref().ok_or("no benchmark of an earlier commit: pass --earlier")?),
        }
    }
}

impl ClientVariant {
    /// Returns the command for this client. `kubeconfig` selects the server, which has `expect` objects.
    pub(super) fn command(&self, programs: &Programs, kubeconfig: &Path, expect: usize) -> Result<Command, BenchError> {
        let option_prefix = self.library.option_prefix();
        let mut command = self.library.command(programs.path_for(self.library)?, kubeconfig);
        command.arg(format!("{option_prefix}expect={expect}"));
        command.args(self.arguments);
        Ok(command)
    }
}

impl Library {
    /// All compared libraries.
    pub(super) const COMPARED: [Self; 3] = [Self::Steadfast, Self::Kube, Self::ClientGo];

    /// Returns the command that runs `program` as a client of the server in `kubeconfig`.
    pub(super) fn command(self, program: &Path, kubeconfig: &Path) -> Command {
        let mut command = Command::new(program);
        command.arg("client");
        match self {
            Self::Steadfast | Self::Earlier => drop(command.arg("steadfast")),
            Self::Kube => drop(command.arg("kube")),
            Self::Baseline => drop(command.arg("baseline")),
            Self::ClientGo => {}
        }
        command.arg(format!("{}kubeconfig={}", self.option_prefix(), kubeconfig.display()));
        command
    }

    /// Returns the prefix of the client's options.
    pub(super) fn option_prefix(self) -> &'static str {
        if self == Self::ClientGo { "-" } else { "--" }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_per_library_selects_first_clients() {
        let names: Vec<&str> = select_clients(None, true, false).iter().map(|client| client.name).collect();
        assert_eq!(names.len(), 7, "{names:?}");
        assert!(select_clients(Some("dynamic"), false, true).iter().all(|client| client.resource == Resource::Widgets));
    }
}
