//! `steadfast generate`: shell completions and man pages, for packages and for users of `cargo install`.

use std::io;
use std::path::Path;
use std::process::ExitCode;

use clap::{CommandFactory, ValueEnum};
use clap_complete::Shell;

use crate::cli::{Cli, GenerateArgs};
use crate::failure::Failure;

/// Writes the completions of all shells to `FOLDER/completions`, and one man page for each command to `FOLDER/man`.
pub(crate) fn run(args: &GenerateArgs) -> Result<ExitCode, Failure> {
    let failure = |error| Failure::run(format!("cannot write to {}: {error}", args.folder.display()));
    write(&args.folder).map_err(failure)?;
    Ok(ExitCode::SUCCESS)
}

fn write(folder: &Path) -> io::Result<()> {
    let (completions, pages) = (folder.join("completions"), folder.join("man"));
    std::fs::create_dir_all(&completions)?;
    std::fs::create_dir_all(&pages)?;
    for shell in Shell::value_variants() {
        clap_complete::generate_to(*shell, &mut Cli::command(), "steadfast", &completions)?;
    }
    clap_mangen::generate_to(Cli::command(), pages)
}
