//! Arguments of a client.

use std::path::PathBuf;
use std::time::Duration;

/// Timeout of the first sync.
pub(super) const SYNC_TIMEOUT: Duration = Duration::from_mins(10);

/// Library and settings of a client.
#[derive(clap::Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of the command line")]
pub(crate) struct ClientArgs {
    /// Library of the client
    #[arg(value_enum)]
    pub(super) library: ClientLibrary,
    /// Kubeconfig of the server
    #[arg(long)]
    pub(super) kubeconfig: PathBuf,
    /// Number of objects
    #[arg(long, default_value_t = 0)]
    pub(super) expect: usize,
    /// Watches config maps and prints each event, for the measurements under faults. Ignores the other settings
    #[arg(long)]
    pub(super) fault_client: bool,
    /// `pods`, or the custom resource `widgets` as dynamic objects
    #[arg(long, default_value = "pods")]
    pub(super) resource: String,
    /// Caches objects in the server's encoding; only Steadfast supports this
    #[arg(long)]
    pub(super) lazy: bool,
    /// Requests protobuf; in this program, only Steadfast supports this
    #[arg(long)]
    pub(super) protobuf: bool,
    /// Caches each object as its difference from a similar one; only Steadfast supports this
    #[arg(long)]
    pub(super) delta_compressed: bool,
    /// Minimum size in bytes of decoded objects that are cached as compressed bytes; only Steadfast supports this
    #[arg(long)]
    pub(super) decode_on_demand_above: Option<usize>,
    /// Number of helper threads for decoding; only Steadfast supports this
    #[arg(long, default_value_t = 0)]
    pub(super) helpers: usize,
    /// Uses a paged list instead of streamed initial events
    #[arg(long)]
    pub(super) paged: bool,
    /// Writes the cache to this file; only Steadfast supports this, for objects in the server's encoding
    #[arg(long, requires = "lazy")]
    pub(super) checkpoint: Option<PathBuf>,
    /// Drops `managedFields`; Steadfast always does
    #[arg(long)]
    pub(super) trim: bool,
}

#[derive(Clone, Copy, clap::ValueEnum)]
pub(super) enum ClientLibrary {
    Steadfast,
    Kube,
    /// No library: the bytes are read and discarded.
    Baseline,
}
