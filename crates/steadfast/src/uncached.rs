//! What a server says, straight from it: streams for those who keep what they need themselves.
//!
//! Nothing is cached and nothing compared here. Each stream is read at its reader's pace, and goes on by itself where a
//! connection is lost.

mod changes;
mod list;
mod source;

use steadfast_core::ResourceVersion;
use steadfast_core::decode::Kept;

use crate::connection::Connection;
use crate::resource::DynamicType;
use crate::scope::Scope;
use source::Source;

pub use changes::{Change, Changes};
pub use list::List;
pub use source::StreamError;

/// The objects of `K` in `scope`, once, one after the other as they arrive: see [`List`].
pub fn list<K>(connection: &Connection, scope: Scope) -> List<K>
where
    K: Kept,
    DynamicType<K>: Default,
{
    list_with(connection, &DynamicType::<K>::default(), scope)
}

/// The objects of the resource that `kind` describes in `scope`, once: see [`List`].
pub fn list_with<K: Kept>(connection: &Connection, kind: &DynamicType<K>, scope: Scope) -> List<K> {
    List::new(Source::new::<K>(connection, kind, scope))
}

/// The changes of `K` in `scope` after `version`, which the caller has: see [`Changes`].
pub fn watch_from<K>(connection: &Connection, scope: Scope, version: &ResourceVersion) -> Changes<K>
where
    K: Kept,
    DynamicType<K>: Default,
{
    watch_from_with(connection, &DynamicType::<K>::default(), scope, version)
}

/// The changes of the resource that `kind` describes in `scope` after `version`: see [`Changes`].
pub fn watch_from_with<K: Kept>(
    connection: &Connection,
    kind: &DynamicType<K>,
    scope: Scope,
    version: &ResourceVersion,
) -> Changes<K> {
    Changes::new(Source::new::<K>(connection, kind, scope), version)
}
