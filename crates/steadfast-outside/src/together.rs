//! Many changes by few messages, each of which is carried out as a whole or not at all.

/// Who sends them.
pub(crate) trait Sender: Send {
    /// What is changed.
    type Change: Sync;
    /// Why it is not.
    type Error: Send;

    /// Has all of `changes` carried out, or none.
    fn send(&mut self, changes: &[Self::Change]) -> impl Future<Output = Result<(), Self::Error>> + Send;

    /// Whether it may be about one of several, so that the others can be changed without it.
    fn is_of_one(error: &Self::Error) -> bool;
}

/// Has all of `changes` carried out, up to `most` at a time. What is refused for what may be wrong with one of them is sent again one
/// by one, so that it keeps no other waiting; at any other error the rest is left.
///
/// # Errors
///
/// The first one.
pub(crate) async fn together<S: Sender>(mut sender: S, changes: &[S::Change], most: usize) -> Result<(), S::Error> {
    let mut first = Ok(());
    for part in changes.chunks(most) {
        match sender.send(part).await {
            Err(error) if S::is_of_one(&error) && part.len() > 1 => {
                for one in part.chunks(1) {
                    match sender.send(one).await {
                        Err(error) if !S::is_of_one(&error) => return first.and(Err(error)),
                        done => first = first.and(done),
                    }
                }
            }
            Err(error) if !S::is_of_one(&error) => return first.and(Err(error)),
            done => first = first.and(done),
        }
    }
    first
}
