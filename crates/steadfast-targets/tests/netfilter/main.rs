//! Mirrors of kernel tables, nftables and IPVS. Each test starts copies of this program, in other networks or in a
//! guest kernel.

#[cfg(target_os = "linux")]
mod ipvs;
mod nftables;
