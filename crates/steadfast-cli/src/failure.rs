//! Why the program ended early: one message and one exit code.

use std::fmt;
use std::process::ExitCode;

/// A failure, reported once on standard error, with what to do next.
#[derive(Debug)]
pub(crate) struct Failure {
    code: u8,
    message: String,
}

/// Something could not be done, or did not hold.
pub(crate) const RUN: u8 = 1;
/// The command line asks for what there is not. The parser of the command line uses the same.
pub(crate) const USAGE: u8 = 2;
/// The kubeconfig cannot be used, or the server and it do not trust each other.
pub(crate) const CONFIG: u8 = 3;

/// The exit codes, for the help.
pub(crate) const EXIT_CODES: &str = "\
Exit codes:
  0  done, or ended by Ctrl-C
  1  it could not be done, or a scenario of the lab failed
  2  the command line asks for what there is not: an unknown command, flag, resource or scenario
  3  the kubeconfig or a configuration cannot be used, or the server and its certificates or credentials do not go
     together";

impl Failure {
    /// Something could not be done.
    pub(crate) fn run(message: impl fmt::Display) -> Self {
        Self { code: RUN, message: message.to_string() }
    }

    /// The command line asks for what there is not.
    pub(crate) fn usage(message: impl fmt::Display) -> Self {
        Self { code: USAGE, message: message.to_string() }
    }

    /// The configuration cannot be used.
    pub(crate) fn config(message: impl fmt::Display) -> Self {
        Self { code: CONFIG, message: message.to_string() }
    }

    /// Whether something could not be done, and may be possible later.
    pub(crate) fn is_run(&self) -> bool {
        self.code == RUN
    }

    /// Tells the failure, and turns it into the program's exit code.
    pub(crate) fn report(&self) -> ExitCode {
        eprintln!("error: {self}");
        ExitCode::from(self.code)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}
