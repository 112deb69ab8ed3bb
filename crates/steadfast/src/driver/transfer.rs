//! Slot of an informer among the concurrent full transfers of a server.

use futures::future::BoxFuture;

use crate::connection::TransferSlot;

/// Slot among the concurrent full transfers of a server.
pub(super) enum Transfer {
    None,
    Awaited(BoxFuture<'static, TransferSlot>),
    Held(TransferSlot),
}
