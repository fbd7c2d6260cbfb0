//! The format of a command's result: for people, or for programs.

/// The format of a result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Output {
    /// For people
    #[default]
    Text,
    /// For programs
    Json,
}
