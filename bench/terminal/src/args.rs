//! Arguments of the program.

use std::path::PathBuf;

use clap::Parser;

/// Compares terminal programs on many pods that change; from the repository's root, with `script` of util-linux
#[derive(Parser)]
#[command(version)]
pub(crate) struct Args {
    /// Numbers of pods
    #[arg(long, value_delimiter = ',', default_values_t = [14_000, 100_000])]
    pub(crate) pods: Vec<usize>,
    /// Changes per second
    #[arg(long, default_value_t = 500)]
    pub(crate) rate: u32,
    /// Duration of the changes, in seconds
    #[arg(long, default_value_t = 30)]
    pub(crate) seconds: u32,
    /// Path of `steadfast`, built by `cargo build --release -p steadfast-cli`
    #[arg(long, default_value = "target/release/steadfast")]
    pub(crate) steadfast: PathBuf,
    /// Path of kubectl
    #[arg(long, default_value = "kubectl")]
    pub(crate) kubectl: PathBuf,
    /// Path of k9s, which is left out by default
    #[arg(long)]
    pub(crate) k9s: Option<PathBuf>,
    /// Folder for the kubeconfig and for the configuration of the programs
    #[arg(long, default_value = "target/bench-terminal")]
    pub(crate) out: PathBuf,
}
