//! Native part of the Python package `steadfast_kube`. The package's Python files are its public interface.

mod bridge;
mod cache;
mod cluster;
mod errors;
mod logs;
mod object;
mod path;
mod server;
mod session;
mod stream;
mod tree;
mod watching;

/// Native part of `steadfast_kube`.
#[pyo3::pymodule]
mod _native {
    #[pymodule_export]
    use crate::cache::Cache;
    #[pymodule_export]
    use crate::cluster::Cluster;
    #[pymodule_export]
    use crate::object::{Fields, Items, Object};
    #[pymodule_export]
    use crate::server::Server;
    #[pymodule_export]
    use crate::stream::EventStream;
}
