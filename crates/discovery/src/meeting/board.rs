//! The operations that the protocol needs of a meeting place: names that are published once and found by all.

use ferroflow_core::Result;

/// A place where texts are published under names. A published name keeps its content until it is removed.
///
/// An error with the code `Unavailable` may pass; any other means that the place cannot be used.
pub(super) trait Board: Send {
    /// Names the place, for people.
    fn place(&self) -> String;

    /// Publishes a text, unless the name is taken; returns whether this call did it.
    fn publish(&self, name: &str, text: &str) -> Result<bool>;

    /// Lists every published name.
    fn list(&self) -> Result<Listing>;

    /// Returns the content of a name; `None` if there is none.
    fn read(&self, name: &str) -> Result<Option<String>>;

    /// Removes everything, and the place itself if it was made for this.
    fn remove_all(&self) -> Result<()>;

    /// Returns whether published names vanish only because a task removed them.
    fn is_lasting(&self) -> bool {
        true
    }

    /// Returns whether other tasks lose the place when this process ends.
    fn is_host(&self) -> bool {
        false
    }
}

/// The names on a board at one moment.
pub(super) struct Listing {
    pub(super) names: Vec<String>,
    /// Changes when the place was made anew, so that a name may have another content than before.
    pub(super) era: String,
}
