//! What is asked of a client.

use std::path::PathBuf;
use std::time::Duration;

/// How long the first sync may take.
pub(super) const PATIENCE: Duration = Duration::from_mins(10);

/// Which client, of what.
#[derive(clap::Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of the command line")]
pub(crate) struct ClientArgs {
    /// Whose informer.
    #[arg(value_enum)]
    pub(super) library: Library,
    /// How the server is reached.
    #[arg(long)]
    pub(super) kubeconfig: PathBuf,
    /// How many objects there are.
    #[arg(long, default_value_t = 0)]
    pub(super) expect: usize,
    /// Tell everything that is heard of config maps instead, for the faults.
    #[arg(long)]
    pub(super) witness: bool,
    /// `pods`, or the custom resource `widgets` as dynamic objects.
    #[arg(long, default_value = "pods")]
    pub(super) resource: String,
    /// Keep objects as the server wrote them; Steadfast alone can.
    #[arg(long)]
    pub(super) lazy: bool,
    /// Ask for protobuf; Steadfast alone can, of those in this process.
    #[arg(long)]
    pub(super) protobuf: bool,
    /// Keep them beside a sibling; Steadfast alone can.
    #[arg(long)]
    pub(super) packed: bool,
    /// How many threads help to decode; Steadfast alone has such.
    #[arg(long, default_value_t = 0)]
    pub(super) helpers: usize,
    /// A list in pages instead of streamed initial events.
    #[arg(long)]
    pub(super) paged: bool,
    /// Keep the cache in this file beyond the process; Steadfast alone can, of what it keeps as the server wrote it.
    #[arg(long, requires = "lazy")]
    pub(super) checkpoint: Option<PathBuf>,
    /// Drop `managedFields`; Steadfast does so by itself.
    #[arg(long)]
    pub(super) trim: bool,
}

#[derive(Clone, Copy, clap::ValueEnum)]
pub(super) enum Library {
    Steadfast,
    Kube,
    /// None: the bytes are read, and that is all.
    Floor,
}
