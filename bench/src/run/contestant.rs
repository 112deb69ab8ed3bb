//! Who is measured, and how each is started.

use std::path::Path;

use tokio::process::Command;

use crate::Trouble;

/// A client in one of its settings.
#[derive(Clone, Copy)]
pub(super) struct Contestant {
    pub(super) name: &'static str,
    program: Program,
    /// What it is a cache of.
    pub(super) resource: Resource,
    arguments: &'static [&'static str],
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Program {
    Steadfast,
    Kube,
    ClientGo,
}

/// The same objects under two names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Resource {
    /// A built-in type.
    Pods,
    /// A custom resource, read as dynamic objects.
    Widgets,
}

const fn of(
    name: &'static str,
    program: Program,
    resource: Resource,
    arguments: &'static [&'static str],
) -> Contestant {
    Contestant { name, program, resource, arguments }
}

/// Every peer in each of its settings that is the best at something.
pub(super) const ALL: &[Contestant] = &[
    of("steadfast, JSON, streamed", Program::Steadfast, Resource::Pods, &[]),
    of("steadfast, JSON, pages", Program::Steadfast, Resource::Pods, &["--paged"]),
    of("kube-runtime, JSON, streamed", Program::Kube, Resource::Pods, &[]),
    of("kube-runtime, JSON, pages", Program::Kube, Resource::Pods, &["--paged"]),
    of("kube-runtime, JSON, streamed, no managedFields", Program::Kube, Resource::Pods, &["--trim"]),
    of("client-go, protobuf, streamed", Program::ClientGo, Resource::Pods, &[]),
    of("client-go, protobuf, list", Program::ClientGo, Resource::Pods, &["-paged"]),
    of("client-go, protobuf, streamed, no managedFields", Program::ClientGo, Resource::Pods, &["-trim"]),
    of("client-go, JSON, list", Program::ClientGo, Resource::Pods, &["-json", "-paged"]),
    of("steadfast, dynamic", Program::Steadfast, Resource::Widgets, &["--resource=widgets"]),
    of("kube-runtime, dynamic", Program::Kube, Resource::Widgets, &["--resource=widgets"]),
    of("client-go, dynamic", Program::ClientGo, Resource::Widgets, &["-resource=widgets", "-paged"]),
];

impl Contestant {
    /// The process that is this client of the server of `kubeconfig`, which has `expect` objects.
    pub(super) fn command(&self, go: &Path, kubeconfig: &Path, expect: usize) -> Result<Command, Trouble> {
        let dashes = if self.program == Program::ClientGo { "-" } else { "--" };
        let mut command = match self.program {
            Program::ClientGo => {
                let mut command = Command::new(go);
                command.arg("client");
                command
            }
            Program::Steadfast | Program::Kube => {
                let mut command = Command::new(std::env::current_exe()?);
                command.arg("client").arg(if self.program == Program::Kube { "kube" } else { "steadfast" });
                command
            }
        };
        command.arg(format!("{dashes}kubeconfig={}", kubeconfig.display()));
        command.arg(format!("{dashes}expect={expect}"));
        command.args(self.arguments);
        Ok(command)
    }

    /// Whether the others are compared with it.
    pub(super) fn is_ours(&self) -> bool {
        self.program == Program::Steadfast
    }
}
