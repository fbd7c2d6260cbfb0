//! Checksums as in TensorFlow's files: CRC-32C, masked so that checksums of data that contains checksums stay strong.

const MASK: u32 = 0xa282_ead8;

/// The masked form that files store.
pub fn mask(crc: u32) -> u32 {
    crc.rotate_right(15).wrapping_add(MASK)
}

/// The checksum behind a masked one.
pub fn unmask(masked: u32) -> u32 {
    masked.wrapping_sub(MASK).rotate_left(15)
}

/// The masked checksum of these bytes.
pub fn masked(bytes: &[u8]) -> u32 {
    mask(crc32c::crc32c(bytes))
}

/// The checksum of data with checksum `crc` followed by these bytes; starts at 0.
pub fn extend(crc: u32, bytes: &[u8]) -> u32 {
    crc32c::crc32c_append(crc, bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_can_be_undone() {
        assert_eq!(crc32c::crc32c(b"123456789"), 0xe306_9283);
        assert_eq!(unmask(mask(0xe306_9283)), 0xe306_9283);
    }
}
