//! Lists and watches without a cache, as streams, for callers that store the objects themselves.
//!
//! A stream caches and compares nothing. It reads at the pace of its caller, and resumes after a lost connection.

mod arrival_clock;
mod changes;
mod list;
mod source;

use steadfast_core::ResourceVersion;
use steadfast_core::decode::Cacheable;

use crate::connection::Connection;
use crate::resource::DynamicType;
use crate::scope::Scope;
use source::StreamRequests;

pub use changes::{Changes, WatchEvent};
pub use list::List;
pub use source::StreamError;

/// Lists the objects of `K` in `scope` once, as a stream: see [`List`].
pub fn list<K>(connection: &Connection, scope: Scope) -> List<K>
where
    K: Cacheable,
    DynamicType<K>: Default,
{
    list_with(connection, &DynamicType::<K>::default(), scope)
}

/// Lists the objects of the resource that `kind` describes in `scope` once, as a stream: see [`List`].
pub fn list_with<K: Cacheable>(connection: &Connection, kind: &DynamicType<K>, scope: Scope) -> List<K> {
    List::new(StreamRequests::new::<K>(connection, kind, scope))
}

/// Watches the changes of `K` in `scope` after `version`: see [`Changes`].
pub fn watch_from<K>(connection: &Connection, scope: Scope, version: &ResourceVersion) -> Changes<K>
where
    K: Cacheable,
    DynamicType<K>: Default,
{
    watch_from_with(connection, &DynamicType::<K>::default(), scope, version)
}

/// Watches the changes of the resource that `kind` describes in `scope` after `version`: see [`Changes`].
pub fn watch_from_with<K: Cacheable>(
    connection: &Connection,
    kind: &DynamicType<K>,
    scope: Scope,
    version: &ResourceVersion,
) -> Changes<K> {
    Changes::new(StreamRequests::new::<K>(connection, kind, scope), version)
}
