//! Values of flags that the library reads. Its errors have a code, which says nothing on a command line.

use ferroflow::Status;
use std::str::FromStr;

/// Reads the value of a flag.
pub(crate) fn parse<T: FromStr<Err = Status>>(text: &str) -> Result<T, String> {
    text.parse().map_err(|error: Status| error.message().to_owned())
}

#[cfg(test)]
mod tests {
    use super::parse;
    use ferroflow::discovery::PortChoice;

    #[test]
    fn errors_have_no_code() {
        assert!(parse::<PortChoice>("x").unwrap_err().starts_with("'x' is not a port"));
    }
}
