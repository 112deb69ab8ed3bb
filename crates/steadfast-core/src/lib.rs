//! The informer machinery without I/O: the inside of `steadfast`, and no library of its own.
//!
//! **Nothing of this crate is promised but what `steadfast` hands on**, by the names in its `docs/api.md`. All else may change
//! with any release; a program that names this crate has to name its exact version.
//!
//! Nothing here opens a socket, reads a clock, spawns a task or draws a random number: time and
//! randomness are arguments, bytes come in and decisions go out, so that millions of histories can be
//! tried in one thread. The library `steadfast` is the thin shell around it.

pub mod backoff;
pub mod breach;
pub mod checkpoint;
pub mod debts;
pub mod decode;
pub mod event;
pub mod filter;
mod footprint;
pub mod frame;
pub mod freshness;
pub mod key;
pub mod keyset;
pub mod lazy;
pub mod object;
pub mod ordmap;
pub mod path;
pub mod protobuf;
pub mod queue;
pub mod random;
pub mod record;
pub mod reflector;
mod scan;
pub mod selector;
mod short;
pub mod slots;
pub mod store;
mod text;
pub mod time;
pub mod uid;
pub mod version;

pub use decode::{Encoding, Kept, RawObject};
pub use event::{Certainty, DeleteReason, Event};
pub use freshness::{Doubt, Freshness};
pub use key::{InvalidKey, ObjectKey};
pub use keyset::KeySet;
pub use lazy::Lazy;
pub use object::{Entry, Object, Weighed};
pub use path::FieldPath;
pub use time::Instant;
pub use uid::Uid;
pub use version::ResourceVersion;
