//! Versions of the C library's symbols that a binary needs.

/// The newest version of the GNU C library that a binary names; `None` if it names none, as a static one does.
///
/// The dynamic linker compares such names (`GLIBC_2.17`) with those of the library that it finds, and refuses a binary that
/// needs one that is not there. They are texts of their own in a table of the binary, each with a zero at its end.
pub(super) fn newest(binary: &[u8]) -> Option<(u32, u32)> {
    let texts = binary.split(|byte| *byte == 0);
    texts.filter_map(|text| text.strip_prefix(b"GLIBC_")).filter_map(version).max()
}

/// The first two numbers of a version such as `2.17` or `2.2.5`.
fn version(text: &[u8]) -> Option<(u32, u32)> {
    let mut numbers = std::str::from_utf8(text).ok()?.split('.').map(|number| number.parse().ok());
    Some((numbers.next()??, numbers.next()??))
}

#[cfg(test)]
mod tests {
    use super::newest;

    #[test]
    fn the_newest_version_is_the_largest_number() {
        let binary = b"\x7fELF\0GLIBC_2.2.5\0open\0GLIBC_2.17\0GLIBC_2.9\0GLIBC_PRIVATE\0see GLIBC_2.99\0";
        assert_eq!(newest(binary), Some((2, 17)));
        assert_eq!(newest(b"\x7fELF\0static\0"), None);
    }
}
