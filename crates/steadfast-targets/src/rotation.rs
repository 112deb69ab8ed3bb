//! Order of equivalent servers: the last server that responded comes first.

use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};

/// Equivalent servers of one target, such as the members of an etcd cluster or the addresses of a name.
#[derive(Clone, Debug)]
pub(crate) struct Rotation<T> {
    servers: Arc<Mutex<Vec<T>>>,
}

impl<T: Clone + PartialEq> Rotation<T> {
    pub(crate) fn new(servers: Vec<T>) -> Self {
        Self { servers: Arc::new(Mutex::new(servers)) }
    }

    fn servers(&self) -> MutexGuard<'_, Vec<T>> {
        self.servers.lock()
    }

    /// Returns all servers in the order of the next request.
    pub(crate) fn order(&self) -> Vec<T> {
        self.servers().clone()
    }

    /// Replaces the set of servers. Already known servers keep their order and come before new ones.
    pub(crate) fn refresh(&self, current_servers: Vec<T>) {
        let mut servers = self.servers();
        // Known servers keep their order, so a refresh does not forget which server responded last.
        servers.retain(|server| current_servers.contains(server));
        let new_servers: Vec<T> = current_servers.into_iter().filter(|server| !servers.contains(server)).collect();
        servers.extend(new_servers);
    }

    /// Moves `server` to the front after a response.
    pub(crate) fn record_success(&self, server: &T) {
        let mut servers = self.servers();
        if let Some(position) = servers.iter().position(|other| other == server) {
            let server = servers.remove(position);
            servers.insert(0, server);
        }
    }

    /// Moves `server` to the end after a request without a response.
    pub(crate) fn record_failure(&self, server: &T) {
        let mut servers = self.servers();
        if let Some(position) = servers.iter().position(|other| other == server) {
            let server = servers.remove(position);
            servers.push(server);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rotation_puts_responding_servers_first() {
        let rotation = Rotation::new(vec![1, 2, 3]);
        rotation.record_failure(&1);
        assert_eq!(rotation.order(), [2, 3, 1]);
        rotation.record_success(&3);
        assert_eq!(rotation.order(), [3, 2, 1]);
        rotation.record_failure(&7);
        assert_eq!(rotation.order(), [3, 2, 1]);
    }

    #[test]
    fn rotation_refresh_keeps_known_order() {
        let rotation = Rotation::new(vec![1, 2, 3]);
        rotation.record_success(&3);
        rotation.refresh(vec![1, 3, 4]);
        assert_eq!(rotation.order(), [3, 1, 4]);
    }
}
