//! The compared clients, and their start.

use std::fmt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use tokio::process::Command;

use crate::Trouble;

/// Client with certain settings.
#[derive(Clone, Copy)]
pub(super) struct Contestant {
    pub(super) name: &'static str,
    /// Library of the client.
    pub(super) team: Team,
    /// Resource that the client caches.
    pub(super) resource: Resource,
    arguments: &'static [&'static str],
}

/// Library.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Team {
    /// This one.
    Steadfast,
    /// kube-runtime.
    Kube,
    /// client-go.
    ClientGo,
    /// Steadfast from a benchmark program of an earlier commit.
    Earlier,
    /// No library: a client that reads and discards the bytes.
    Floor,
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

impl fmt::Display for Team {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Steadfast => "Steadfast",
            Self::Kube => "kube-runtime",
            Self::ClientGo => "client-go",
            Self::Earlier => "Steadfast, earlier",
            Self::Floor => "reading alone",
        })
    }
}

const fn of(name: &'static str, team: Team, resource: Resource, arguments: &'static [&'static str]) -> Contestant {
    Contestant { name, team, resource, arguments }
}

/// Each library with each of its settings that is the best for some measurement.
const ALL: &[Contestant] = &[
    of("steadfast, JSON, streamed", Team::Steadfast, Resource::Pods, &[]),
    of("steadfast, JSON, pages", Team::Steadfast, Resource::Pods, &["--paged"]),
    of("steadfast, lazy, JSON, streamed", Team::Steadfast, Resource::Pods, &["--lazy"]),
    of("steadfast, lazy, JSON, pages", Team::Steadfast, Resource::Pods, &["--lazy", "--paged"]),
    of("steadfast, protobuf, streamed", Team::Steadfast, Resource::Pods, &["--protobuf"]),
    of("steadfast, JSON, pages, a helper", Team::Steadfast, Resource::Pods, &["--paged", "--helpers=1"]),
    of("steadfast, protobuf, streamed, a helper", Team::Steadfast, Resource::Pods, &["--protobuf", "--helpers=1"]),
    of("steadfast, lazy, protobuf, streamed", Team::Steadfast, Resource::Pods, &["--lazy", "--protobuf"]),
    of("steadfast, lazy, packed, JSON, streamed", Team::Steadfast, Resource::Pods, &["--lazy", "--packed"]),
    of(
        "steadfast, lazy, packed, protobuf, streamed",
        Team::Steadfast,
        Resource::Pods,
        &["--lazy", "--packed", "--protobuf"],
    ),
    of("kube-runtime, JSON, streamed", Team::Kube, Resource::Pods, &[]),
    of("kube-runtime, JSON, pages", Team::Kube, Resource::Pods, &["--paged"]),
    of("kube-runtime, JSON, streamed, no managedFields", Team::Kube, Resource::Pods, &["--trim"]),
    of("client-go, protobuf, streamed", Team::ClientGo, Resource::Pods, &[]),
    of("client-go, protobuf, list", Team::ClientGo, Resource::Pods, &["-paged"]),
    of("client-go, protobuf, streamed, no managedFields", Team::ClientGo, Resource::Pods, &["-trim"]),
    of("client-go, JSON, streamed", Team::ClientGo, Resource::Pods, &["-json"]),
    of("client-go, JSON, list", Team::ClientGo, Resource::Pods, &["-json", "-paged"]),
    of("reading alone, JSON, streamed", Team::Floor, Resource::Pods, &[]),
    of("reading alone, JSON, pages", Team::Floor, Resource::Pods, &["--paged"]),
    of("reading alone, protobuf, streamed", Team::Floor, Resource::Pods, &["--protobuf"]),
    of("steadfast, dynamic", Team::Steadfast, Resource::Widgets, &["--resource=widgets"]),
    of("steadfast, lazy, dynamic", Team::Steadfast, Resource::Widgets, &["--resource=widgets", "--lazy"]),
    of(
        "steadfast, lazy, dynamic, pages",
        Team::Steadfast,
        Resource::Widgets,
        &["--resource=widgets", "--lazy", "--paged"],
    ),
    of("kube-runtime, dynamic", Team::Kube, Resource::Widgets, &["--resource=widgets"]),
    of("client-go, dynamic", Team::ClientGo, Resource::Widgets, &["-resource=widgets", "-paged"]),
];

/// Settings that a benchmark program of an earlier commit supports too: typed clients.
const EARLIER: &[Contestant] = &[
    of("steadfast earlier, JSON, streamed", Team::Earlier, Resource::Pods, &[]),
    of("steadfast earlier, JSON, pages", Team::Earlier, Resource::Pods, &["--paged"]),
];

/// Returns the clients with `only` in their names. Includes Steadfast of an earlier commit if an `earlier` program
/// exists. With `few`, returns only the first setting of each library for each resource.
pub(super) fn chosen(only: Option<&str>, few: bool, earlier: bool) -> Vec<&'static Contestant> {
    let named = ALL
        .iter()
        .chain(EARLIER.iter().filter(|_| earlier))
        .filter(|one| only.is_none_or(|part| one.name.contains(part)));
    let mut chosen: Vec<&Contestant> = Vec::new();
    for one in named {
        if !few || !chosen.iter().any(|other| (other.team, other.resource) == (one.team, one.resource)) {
            chosen.push(one);
        }
    }
    chosen
}

/// Returns the client with this name.
pub(super) fn named(name: &str) -> Result<&'static Contestant, Trouble> {
    ALL.iter().find(|one| one.name == name).ok_or_else(|| {
        let names: Vec<&str> = ALL.iter().map(|one| one.name).collect();
        format!("unknown client {name:?}; known clients: {}", names.join("; ")).into()
    })
}

/// Programs of the clients.
#[derive(Clone)]
pub(super) struct Programs {
    /// This program.
    pub(super) this: PathBuf,
    /// Program in Go.
    pub(super) go: PathBuf,
    /// Benchmark program of an earlier commit.
    pub(super) earlier: Option<PathBuf>,
}

impl Programs {
    /// Returns the program with the client of that library.
    pub(super) fn of(&self, team: Team) -> Result<&Path, Trouble> {
        match team {
            Team::Steadfast | Team::Kube | Team::Floor => Ok(&self.this),
            Team::ClientGo => Ok(&self.go),
            Team::Earlier => Ok(self.earlier.as_ref().ok_or("no benchmark of an earlier commit: pass --earlier")?),
        }
    }
}

impl Contestant {
    /// Returns the command for this client. `kubeconfig` selects the server, which has `expect` objects.
    pub(super) fn command(&self, programs: &Programs, kubeconfig: &Path, expect: usize) -> Result<Command, Trouble> {
        let dashes = self.team.dashes();
        let mut command = self.team.command(programs.of(self.team)?, kubeconfig);
        command.arg(format!("{dashes}expect={expect}"));
        command.args(self.arguments);
        Ok(command)
    }
}

impl Team {
    /// All compared libraries.
    pub(super) const ALL: [Self; 3] = [Self::Steadfast, Self::Kube, Self::ClientGo];

    /// Returns the command that runs `program` as a client of the server in `kubeconfig`.
    pub(super) fn command(self, program: &Path, kubeconfig: &Path) -> Command {
        let mut command = Command::new(program);
        command.arg("client");
        match self {
            Self::Steadfast | Self::Earlier => drop(command.arg("steadfast")),
            Self::Kube => drop(command.arg("kube")),
            Self::Floor => drop(command.arg("floor")),
            Self::ClientGo => {}
        }
        command.arg(format!("{}kubeconfig={}", self.dashes(), kubeconfig.display()));
        command
    }

    /// Returns the prefix of the client's options.
    pub(super) fn dashes(self) -> &'static str {
        if self == Self::ClientGo { "-" } else { "--" }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_selects_one_client_per_library_and_resource() {
        let few: Vec<&str> = chosen(None, true, false).iter().map(|one| one.name).collect();
        assert_eq!(few.len(), 7, "{few:?}");
        assert!(chosen(Some("dynamic"), false, true).iter().all(|one| one.resource == Resource::Widgets));
    }
}
