//! Every kind of kubeconfig, loaded and used against the embedded server, and the rotation of its credentials.

mod forms;
mod headers;
mod malformed;
mod rejected_credentials;
mod rotation;
#[cfg(unix)]
mod shapes;
mod support;
mod tunnel;
