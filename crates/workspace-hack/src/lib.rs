//! No code: `Cargo.toml` selects the features of third-party crates for all builds of this repository.
