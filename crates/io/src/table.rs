//! Sorted tables in LevelDB's format, used by checkpoint indexes: blocks of prefix-compressed entries, an index block,
//! and a footer.

mod block;
mod reader;
mod writer;

pub use reader::TableReader;
pub use writer::TableWriter;

/// The last eight bytes of the footer.
const MAGIC: u64 = 0xdb47_7524_8b80_fb57;
/// Two block handles, padded, and the magic number.
const FOOTER_LENGTH: usize = 48;
/// A byte for the compression, and a masked checksum.
const TRAILER_LENGTH: usize = 5;

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    fn path(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("ferroflow-table-{}-{name}", std::process::id()))
    }

    #[test]
    fn written_entries_are_found() {
        let path = path("found");
        let mut writer = TableWriter::create(&path).unwrap();
        let keys: Vec<String> = (0..5000).map(|i| format!("layer{i:05}/kernel")).collect();
        for (i, key) in keys.iter().enumerate() {
            writer.add(key.as_bytes(), format!("value {i}").repeat(20).as_bytes()).unwrap();
        }
        assert!(writer.add(b"a", b"").is_err(), "keys must ascend");
        writer.finish().unwrap();
        let reader = TableReader::open(&path).unwrap();
        for i in [0, 1, 15, 16, 17, 2500, 4999] {
            let value = reader.get(keys[i].as_bytes()).unwrap().unwrap();
            assert_eq!(value, format!("value {i}").repeat(20).as_bytes());
        }
        assert!(reader.get(b"layer00000").unwrap().is_none());
        assert!(reader.get(b"zzz").unwrap().is_none());
        let mut seen = 0;
        reader
            .for_each(|key, _| {
                assert_eq!(key, keys[seen].as_bytes());
                seen += 1;
                Ok(())
            })
            .unwrap();
        assert_eq!(seen, keys.len());
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn damage_is_noticed() {
        let path = path("damage");
        let mut writer = TableWriter::create(&path).unwrap();
        writer.add(b"", b"header").unwrap();
        writer.add(b"x", b"entry").unwrap();
        writer.finish().unwrap();
        let whole = std::fs::read(&path).unwrap();
        for at in 0..whole.len() {
            let mut bytes = whole.clone();
            bytes[at] ^= 0x41;
            std::fs::write(&path, &bytes).unwrap();
            if let Ok(reader) = TableReader::open(&path) {
                // The footer's padding is not checked; a change anywhere else must not yield another value.
                if let Ok(Some(value)) = reader.get(b"x") {
                    assert_eq!(value, b"entry", "byte {at}");
                }
            }
        }
        for length in 0..whole.len() {
            std::fs::write(&path, &whole[..length]).unwrap();
            assert!(TableReader::open(&path).is_err(), "cut to {length} bytes");
        }
        std::fs::remove_file(path).unwrap();
    }
}
