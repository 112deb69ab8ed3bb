//! Types of objects for comparing, merging and storing them: the built-in types, and the types that schemas define.

#[cfg(feature = "crd")]
mod custom;
mod structure;
mod table;
pub(crate) mod types;

#[cfg(feature = "apply")]
pub(crate) use structure::as_struct;
pub(crate) use structure::trim;
pub(crate) use types::TypeRef;
