//! What informers, listers and indexes hold in common.

use std::sync::Arc;

use tokio::sync::mpsc;

use crate::driver::Command;
use crate::shared::Shared;

/// What keeps the watch running: as long as one is held, it goes on.
pub(crate) struct Owner<K> {
    pub(crate) shared: Arc<Shared<K>>,
    pub(crate) commands: mpsc::UnboundedSender<Command>,
}
