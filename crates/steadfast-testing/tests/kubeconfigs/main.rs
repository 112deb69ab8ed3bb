//! Every form of a kubeconfig, loaded and used against the embedded server; and what rotates behind it.

mod forms;
mod headers;
mod malformed;
mod refused;
mod rotation;
#[cfg(unix)]
mod shapes;
mod tunnel;
mod world;
