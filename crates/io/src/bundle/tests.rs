//! Round trips of whole, partitioned and merged checkpoints.

use super::*;
use bytes::Bytes;
use ferroflow_core::{Code, Shape, Tensor};

/// A directory that is removed at the end of the test.
struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Directory {
        let path = std::env::temp_dir().join(format!("ferroflow-bundle-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Directory(path)
    }

    fn prefix(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().to_owned()
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn counting(rows: usize, columns: usize, first: f32) -> Tensor {
    let values = (0..rows * columns).map(|i| first + i as f32).collect();
    Tensor::new(Shape::matrix(rows, columns), values).unwrap()
}

#[test]
fn tensors_survive_a_round_trip() {
    let directory = Directory::new("round-trip");
    let prefix = directory.prefix("model");
    let words = vec![Bytes::from_static(b"ab"), Bytes::new(), Bytes::from(vec![b'c'; 300])];
    let mut writer = BundleWriter::create(&prefix).unwrap();
    writer.add("x", &counting(2, 3, 0.0)).unwrap();
    writer.add("words", &Tensor::vector(words.clone())).unwrap();
    writer.add("flag", &Tensor::scalar(true)).unwrap();
    assert_eq!(writer.add("x", &Tensor::scalar(1i32)).unwrap_err().code(), Code::InvalidArgument);
    assert!(BundleReader::open(&prefix).is_err(), "an unfinished checkpoint has no index");
    writer.finish().unwrap();

    let reader = BundleReader::open(&prefix).unwrap();
    assert_eq!(reader.read("x").unwrap().flat::<f32>().unwrap(), [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]);
    assert_eq!(reader.read("words").unwrap().flat::<Bytes>().unwrap(), words);
    assert!(reader.read("flag").unwrap().to_scalar::<bool>().unwrap());
    assert_eq!(reader.read("y").unwrap_err().code(), Code::NotFound);
    let column = reader.read_slice("x", &TensorSlice::parse("-:1,1").unwrap()).unwrap();
    assert_eq!(column.flat::<f32>().unwrap(), [1.0, 4.0]);
}

#[test]
fn slices_from_several_devices_become_one_tensor() {
    let directory = Directory::new("slices");
    let prefixes = [directory.prefix("part-0"), directory.prefix("part-1")];
    for (prefix, spec, first) in [(&prefixes[0], "4 3 0,1:-", 0.0), (&prefixes[1], "4 3 1,3:-", 3.0)] {
        let mut writer = BundleWriter::create(prefix).unwrap();
        let spec = SliceSpec::parse(spec).unwrap();
        writer.add_slice("w", &spec, &counting(spec.shape.dim(0), 3, first)).unwrap();
        writer.finish().unwrap();
    }
    let whole = directory.prefix("model");
    merge(&prefixes, &whole, false).unwrap();
    assert!(!index_path(&prefixes[0]).exists());
    let reader = BundleReader::open(&whole).unwrap();
    assert_eq!(reader.read("w").unwrap().flat::<f32>().unwrap(), counting(4, 3, 0.0).flat::<f32>().unwrap());
    let part = reader.read_slice("w", &TensorSlice::parse("0,3:1,2").unwrap()).unwrap();
    assert_eq!(part.flat::<f32>().unwrap(), [1.0, 2.0, 4.0, 5.0, 7.0, 8.0]);
    assert!(merge(&prefixes, &whole, false).is_err());
}

#[test]
fn damage_to_data_is_noticed() {
    let directory = Directory::new("damage");
    let prefix = directory.prefix("model");
    let mut writer = BundleWriter::create(&prefix).unwrap();
    writer.add("x", &counting(2, 3, 0.0)).unwrap();
    writer.finish().unwrap();
    let path = data_path(&prefix, 0, 1);
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[5] ^= 1;
    std::fs::write(&path, &bytes).unwrap();
    let read = |name: &str| BundleReader::open(&prefix).unwrap().read(name);
    assert_eq!(read("x").unwrap_err().code(), Code::DataLoss);
    std::fs::write(&path, &bytes[..7]).unwrap();
    assert_eq!(read("x").unwrap_err().code(), Code::OutOfRange);
}

#[test]
fn missing_slices_are_named() {
    let directory = Directory::new("missing");
    let prefix = directory.prefix("model");
    let mut writer = BundleWriter::create(&prefix).unwrap();
    let spec = SliceSpec::parse("4 3 0,1:-").unwrap();
    writer.add_slice("w", &spec, &counting(1, 3, 0.0)).unwrap();
    writer.finish().unwrap();
    let error = BundleReader::open(&prefix).unwrap().read("w").unwrap_err();
    assert_eq!(error.code(), Code::InvalidArgument);
    assert!(error.message().contains("sufficient slices for partitioned tensor w"), "{error}");
}
