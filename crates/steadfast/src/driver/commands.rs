//! Commands from an informer's handles.

use steadfast_core::decode::Cacheable;
use steadfast_core::reflector::Input;
use steadfast_core::{Instant, ResourceVersion};
use tokio::sync::oneshot;

use super::Driver;
use super::command::Command;

impl<K: Cacheable> Driver<K> {
    /// Executes a command. Returns `Some` if the driver must end; the value is true if the handlers must end too.
    pub(super) fn execute(&mut self, command: Option<Command>) -> Option<bool> {
        match command {
            None => {
                self.shared.warn_of_handlers_left();
                return Some(true);
            }
            Some(Command::Stop { handlers }) => return Some(handlers),
            Some(Command::SeekProof) => self.step(Input::SeekProof),
            Some(Command::Newest(since, reply)) => self.find_newest(since, reply),
            Some(Command::Handlers) => self.process_new_handlers(),
            Some(Command::Decoded) => self.writer.decoded_by_readers(),
            Some(Command::UndecodableRead(error)) => self.read_failed(&error),
        }
        None
    }

    /// Requests the server's current version. The sender is dropped if no response is available.
    fn find_newest(&self, since: Instant, reply: oneshot::Sender<Option<ResourceVersion>>) {
        // A task of its own: the driver must continue to read the watch while the caller waits for the version.
        let newest = self.request_builder.newest(since);
        self.shared.environment.spawn(Box::pin(async move {
            if let Ok(version) = newest.await {
                drop(reply.send(version));
            }
        }));
    }

    /// Sends handlers with a filter their initial objects, and schedules resyncs.
    fn process_new_handlers(&mut self) {
        let now = self.shared.environment.now();
        for handler in self.shared.take_newcomers() {
            self.shared.join(&handler);
            if let Some(period) = handler.resync {
                self.resyncs.add(now, period, &handler);
            }
        }
    }
}
