//! Writes a checkpoint that `oracle/check_bundle.py` reads with stock, or checks one that stock wrote:
//! `cargo run -p ferroflow-io --example bundle -- write|check <prefix>`.

use bytes::Bytes;
use ferroflow_core::{DType, Result, Shape, Tensor, bail, ensure};
use ferroflow_io::bundle::{self, BundleReader, BundleWriter, SliceSpec, TensorSlice};

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["write", prefix] => write(prefix),
        ["check", prefix] => check(prefix),
        _ => bail!(InvalidArgument, "expected write or check and a prefix"),
    }
}

fn counting(shape: Shape, first: f32) -> Result<Tensor> {
    let values = (0..shape.elements()).map(|i| first + i as f32).collect();
    Tensor::new(shape, values)
}

fn words() -> Tensor {
    Tensor::vector(vec![Bytes::from_static(b"ab"), Bytes::new(), Bytes::from(vec![b'c'; 300])])
}

/// Writes tensors in another order than the index has; enough of them for several index blocks.
fn write(prefix: &str) -> Result<()> {
    let parts = [format!("{prefix}_temp/part-00000-of-00002"), format!("{prefix}_temp/part-00001-of-00002")];
    let mut writer = BundleWriter::create(&parts[0])?;
    writer.add("words", &words())?;
    writer.add("step", &Tensor::scalar(7i64))?;
    writer.add("flags", &Tensor::vector(vec![true, false]))?;
    writer.add("nothing", &Tensor::zeros(DType::Float, Shape::matrix(0, 3)))?;
    for i in 0..20_000 {
        writer.add(&format!("layer_{i:05}/kernel"), &Tensor::scalar(i))?;
    }
    let top = SliceSpec::parse("100 3 0,70:-")?;
    writer.add_slice("table", &top, &counting(top.shape.clone(), 0.0)?)?;
    writer.finish()?;
    let mut writer = BundleWriter::create(&parts[1])?;
    let bottom = SliceSpec::parse("100 3 70,30:-")?;
    writer.add_slice("table", &bottom, &counting(bottom.shape.clone(), 210.0)?)?;
    writer.finish()?;
    bundle::merge(&parts, prefix, false)
}

fn check(prefix: &str) -> Result<()> {
    let reader = BundleReader::open(prefix)?;
    ensure!(reader.read("words")?.flat::<Bytes>()? == words().flat::<Bytes>()?, DataLoss, "words differ");
    ensure!(reader.read("step")?.to_scalar::<i64>()? == 7, DataLoss, "step differs");
    ensure!(reader.read("flags")?.flat::<bool>()? == [true, false], DataLoss, "flags differ");
    ensure!(reader.read("nothing")?.shape() == &Shape::matrix(0, 3), DataLoss, "nothing differs");
    for i in 0..20_000 {
        let name = format!("layer_{i:05}/kernel");
        ensure!(reader.read(&name)?.to_scalar::<i32>()? == i, DataLoss, "{name} differs");
    }
    let table = reader.read("table")?;
    let expected = counting(Shape::matrix(100, 3), 0.0)?;
    ensure!(table.flat::<f32>()? == expected.flat::<f32>()?, DataLoss, "table differs");
    let part = reader.read_slice("table", &TensorSlice::parse("69,2:1,2")?)?;
    ensure!(part.flat::<f32>()? == [208.0, 209.0, 211.0, 212.0], DataLoss, "a part of table differs");
    println!("{prefix} agrees");
    Ok(())
}
