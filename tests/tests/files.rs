//! Record files, event files and datasets: stock reads what we write, and we read what stock writes.

use crate::{binary, stock};
use ferroflow::data::{
    Compression, Dataset, ExampleSpec, Feature, Features, RecordWriter, encode_example, tf_record_compressed,
};
use ferroflow::summary::{self, SessionEvent, SummaryWriter};
use ferroflow::{DType, Graph, Session, Tensor};
use ferroflow_proto::tensorflow::{GraphDef, NodeDef, event};
use std::path::Path;
use std::process::{Command, Stdio};

const PACKINGS: [&str; 3] = ["", "GZIP", "ZLIB"];

#[test]
fn files_are_read_by_stock_and_by_us() {
    let Some(python) = stock::python() else { return };
    let directory = std::env::temp_dir().join(format!("ferroflow-files-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let ask = |what: &str| {
        let script = stock::root().join("oracle/files.py");
        let status = Command::new(&python).arg(script).arg(what).arg(&directory).status();
        assert!(status.expect("the interpreter starts").success(), "files.py {what}");
    };
    ask("write");
    read_records(&directory);
    read_sequences(&directory);
    read_events(&directory);
    compare_orders(&directory);
    write_events(&directory);
    ask("check");
    std::fs::remove_dir_all(directory).unwrap();
}

/// Reads stock's records, and writes the same examples for stock to read.
fn read_records(directory: &Path) {
    let spec = ExampleSpec::new()
        .feature("image", Feature::fixed(DType::Float, [2]))
        .feature("label", Feature::fixed(DType::Int64, []).or(Tensor::scalar(-1i64)))
        .feature("words", Feature::variable(DType::String));
    for packing in PACKINGS {
        let compression = Compression::from_name(packing).unwrap();
        let records = tf_record_compressed([directory.join(format!("stock{packing}.tfrecord"))], compression);
        let examples = records.parse_examples(&spec).unwrap().collect().unwrap();
        let path = directory.join(format!("ours{packing}.tfrecord"));
        let mut writer = RecordWriter::create(path, compression).unwrap();
        assert_eq!(examples.len(), 4);
        for (i, example) in examples.into_iter().enumerate() {
            assert_eq!(example["image"].flat::<f32>().unwrap(), [i as f32 + 0.5, -(i as f32)]);
            assert_eq!(example["label"].to_scalar::<i64>().unwrap(), if i < 3 { i as i64 } else { -1 });
            assert_eq!(example["words"].shape().dims(), [i as i64]);
            let given = |(name, _): &(String, Tensor)| name != "label" || i < 3;
            let example: Features = example.into_iter().filter(given).collect();
            writer.write(&encode_example(&example).unwrap()).unwrap();
        }
        writer.finish().unwrap();
    }
}

/// Reads stock's sequence examples: steps are stacked, and the shorter ones extended.
fn read_sequences(directory: &Path) {
    let context = ExampleSpec::new().feature("length", Feature::fixed(DType::Int64, []));
    let lists = ExampleSpec::new()
        .feature("x", Feature::fixed(DType::Float, [2]))
        .feature("words", Feature::variable(DType::String))
        .feature("missing", Feature::fixed(DType::Float, [3]));
    let records = tf_record_compressed([directory.join("sequences.tfrecord")], Compression::None);
    let examples = records.parse_sequence_examples(&context, &lists).unwrap().collect().unwrap();
    assert_eq!(examples.len(), 3);
    for (i, (whole, steps)) in examples.iter().enumerate() {
        let length = i as i64 + 1;
        assert_eq!(whole["length"].to_scalar::<i64>().unwrap(), length);
        let expected: Vec<f32> = (0..=i).flat_map(|step| [step as f32, step as f32 + 0.5]).collect();
        assert_eq!(steps["x"].flat::<f32>().unwrap(), expected);
        assert_eq!(steps["x"].shape().dims(), [length, 2]);
        assert_eq!(steps["words"].shape().dims(), [length, i as i64]);
        assert_eq!(steps["missing"].shape().dims(), [0, 3]);
    }
}

fn read_events(directory: &Path) {
    let mut files = std::fs::read_dir(directory.join("stock-events")).unwrap();
    let file = files.next().unwrap().unwrap().path();
    let records = tf_record_compressed([file], Compression::None);
    let decode = |record| prost::Message::decode(record).unwrap();
    let events: Vec<ferroflow_proto::tensorflow::Event> = records.map(decode).collect().unwrap();
    assert!(matches!(&events[0].what, Some(event::What::FileVersion(version)) if version == "brain.Event:2"));
    assert!(events.iter().any(|event| event.step == 3));
}

/// Shuffled and interleaved numbers come in stock's order.
fn compare_orders(directory: &Path) {
    for line in std::fs::read_to_string(directory.join("orders.txt")).unwrap().lines() {
        if let Some(numbers) = line.strip_prefix("interleave ") {
            let expected: Vec<i64> = numbers.split(' ').map(|number| number.parse().unwrap()).collect();
            let repeated = |x: i64| Ok(Dataset::from_vec(vec![x; x as usize + 1]));
            let numbers = Dataset::from_fn(|| 0..5);
            assert_eq!(numbers.interleave(2, 2, repeated).collect().unwrap(), expected);
            assert_eq!(numbers.par_interleave(2, 2, repeated).collect().unwrap(), expected);
            continue;
        }
        let numbers: Vec<u64> = line.split(' ').map(|number| number.parse().unwrap()).collect();
        let [elements, buffer, seed, passes] = numbers[..4] else { panic!("{line}") };
        let shuffled = Dataset::from_fn(move || 0..elements).shuffle(buffer as usize, seed);
        assert_eq!(shuffled.repeat_times(passes as usize).collect().unwrap(), numbers[4..], "{line}");
    }
}

fn write_events(directory: &Path) {
    let writer = SummaryWriter::create(directory.join("our-events")).unwrap();
    writer.session(SessionEvent::Start, 0).unwrap();
    writer.scalar("loss", 0.25, 5).unwrap();
    let values: Vec<f64> = (0..100).map(|i| -3.0 + i as f64 * (8.0 / 99.0)).collect();
    let values = Tensor::vector(values);
    writer.histogram("weights", &values, 5).unwrap();
    writer.text("note", "some *text*", 5).unwrap();
    let count = 2 * 3 * 5 * 3;
    // The steps that numpy takes.
    let step = 2.0 / (count - 1) as f64;
    let pixels =
        (0..count).map(|i| if i == count - 1 { 1.0 } else { (i as f64 * step - 1.0) as f32 }).collect();
    let images = Tensor::new([2, 3, 5, 3], pixels).unwrap();
    writer.image("picture", &images, 5).unwrap();
    std::fs::write(directory.join("summaries.pb"), summaries(values, images)).unwrap();
    let node = NodeDef { name: "one".to_owned(), op: "NoOp".to_owned(), ..Default::default() };
    writer.graph(&GraphDef { node: vec![node], ..Default::default() }, 0).unwrap();
    writer.session(SessionEvent::Checkpoint("model-5".to_owned()), 5).unwrap();
}

/// The same things, made by the nodes of a graph.
fn summaries(values: Tensor, images: Tensor) -> bytes::Bytes {
    let graph = Graph::new();
    let s = graph.scope();
    summary::scalar(&s, "loss", 0.25f32).unwrap();
    summary::histogram(&s, "weights", values).unwrap();
    summary::image(&s, "picture", images).unwrap();
    let note = Tensor::vector(vec![bytes::Bytes::from_static(b"some *text*")]);
    summary::text(&s.scope("inner"), "note", note).unwrap();
    let all = summary::merge_all(&s).unwrap().unwrap();
    Session::new(&graph).unwrap().eval(&all).unwrap().to_scalar().unwrap()
}

/// Records, tables, text, event files and checkpoints of the first format in stores of three kinds that fail now and then;
/// stock reads the same from local files, and reads the files that were written.
#[test]
fn data_may_be_in_object_stores() {
    let Some(python) = stock::python() else { return };
    let mut command = Command::new(python);
    command.arg(stock::root().join("oracle/remote_data.py")).arg(binary::path());
    let output = command.stderr(Stdio::inherit()).output().expect("the interpreter starts");
    let lines = String::from_utf8_lossy(&output.stdout);
    let (first, rest) = lines.split_once('\n').unwrap_or_default();
    assert!(first.starts_with("stock, local files: {'records': [2000, 457800]"), "{first}");
    let written =
        "written ['/first', '/text']\nfirst format True True\nrecords 50 b'49'\nevents [(3, 'loss')]\n";
    let read = "s3 reads alike: True\ngs reads alike: True\nhttp reads alike: True\n";
    assert_eq!(rest, format!("{read}{written}{written}requests failed True\n"), "{}", output.status);
}

/// Checkpoints in a bucket of an object store that fails every fourth request; stock reads the files.
#[test]
fn checkpoints_may_be_in_an_object_store() {
    let Some(python) = stock::python() else { return };
    let mut command = Command::new(python);
    command.arg(stock::root().join("oracle/remote_files.py")).arg(binary::path());
    let output = command.stderr(Stdio::inherit()).output().expect("the interpreter starts");
    let lines = String::from_utf8_lossy(&output.stdout);
    let expected = "\
restored True [0, 1, 2, 3, 4]
requests failed True
files ['run 1/model.ckpt.data-00000-of-00001', 'run 1/model.ckpt.index']
s3://models/none NotFoundError
s3://no-such-bucket/none NotFoundError
s3:///none InvalidArgumentError
saved behind http UnimplementedError
stock reads True [0, 1, 2, 3, 4]
";
    assert_eq!(lines, expected, "{}", output.status);
}
