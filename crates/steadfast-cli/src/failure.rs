//! Failure of the program: one message and one exit code.

use std::fmt;
use std::process::ExitCode;

/// A failure, reported once on standard error, with a remedy.
#[derive(Debug)]
pub(crate) struct Failure {
    code: u8,
    message: String,
}

/// Exit code if an operation failed or a scenario violated the contract.
pub(crate) const EXIT_FAILED: u8 = 1;
/// Exit code for an invalid command line. The argument parser uses the same code.
pub(crate) const EXIT_USAGE: u8 = 2;
/// Exit code for an unusable kubeconfig or configuration, and for rejected certificates or credentials.
pub(crate) const EXIT_CONFIG: u8 = 3;

/// Exit code if a time limit was reached before the condition.
pub(crate) const EXIT_TIME_LIMIT: u8 = 4;

/// Section of the help text with the exit codes.
pub(crate) const EXIT_CODES: &str = "\
Exit codes:
  0  success, or stopped by Ctrl-C
  1  an operation failed, a scenario of the lab failed, doctor found a failure, or audit --for had a finding
  2  invalid command line: unknown command, flag, resource or scenario
  3  invalid kubeconfig or configuration, or the certificates or credentials were rejected
  4  watch --until: the time limit was reached before the condition";

impl Failure {
    /// Creates a failure of an operation.
    pub(crate) fn run(message: impl fmt::Display) -> Self {
        Self { code: EXIT_FAILED, message: message.to_string() }
    }

    /// Creates a failure for an invalid command line.
    pub(crate) fn usage(message: impl fmt::Display) -> Self {
        Self { code: EXIT_USAGE, message: message.to_string() }
    }

    /// Creates a failure for an invalid configuration.
    pub(crate) fn config(message: impl fmt::Display) -> Self {
        Self { code: EXIT_CONFIG, message: message.to_string() }
    }

    /// Returns whether this is the failure of an operation, which may succeed later.
    pub(crate) fn is_run(&self) -> bool {
        self.code == EXIT_FAILED
    }

    /// Reports the failure on standard error and returns the exit code of the program.
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
