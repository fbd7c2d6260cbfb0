//! Datasets that are kept in files: saved and loaded, and snapshots of pipelines, in stock's layout.

use super::branch::Made;
use super::readers::path_of;
use crate::data::fingerprint::{combine, fingerprint, text};
use crate::data::graph::{registry, to_graph};
use crate::data::iterator::OneRun;
use crate::data::snapshot::{self, MESSAGES, RECORDS, Reader, Writer};
use crate::data::{
    Caller, Dataset, END, Element, Function, IteratorCx, Next, Source, SourceCx, Spec, UNKNOWN, kernel,
    scalar,
};
use crate::numeric::philox::fresh_seed;
use ferroflow_core::kernel::{Init, Kernel};
use ferroflow_core::op::{Op, ShapeCx, shapes};
use ferroflow_core::{DType, PartialShape, Result, Tensor, bail, ensure, kernels};
use ferroflow_io::file;
use ferroflow_io::record::Compression;
use ferroflow_proto::tensorflow::data::experimental::SnapshotMetadataRecord;
use std::collections::HashMap;
use std::future::poll_fn;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::task::{Poll, ready};

pub(crate) const OPS: &[&Op] = &[
    &SAVE_DATASET,
    &SAVE_DATASET_V2,
    &LOAD_DATASET,
    &SNAPSHOT_DATASET,
    &SNAPSHOT_DATASET_V2,
    &SNAPSHOT_DATASET_READER,
];

static SAVE_DATASET: Op = Op {
    name: "SaveDataset",
    inputs: &["input_dataset: variant", "path: string", "shard_func_other_args: Tshard_func_args"],
    attrs: &[
        "compression: string = ''",
        "shard_func: func",
        "use_shard_func: bool = true",
        "Tshard_func_args: list(type) >= 0",
    ],
    shape: no_outputs,
    kernels: kernels![any save_kernel],
    ..Op::STATEFUL
};

static SAVE_DATASET_V2: Op = Op {
    name: "SaveDatasetV2",
    inputs: &["input_dataset: variant", "path: string", "shard_func_other_args: Tshard_func_args"],
    outputs: &["handle: variant"],
    attrs: &[
        "compression: string = ''",
        "shard_func: func",
        "use_shard_func: bool = true",
        "Tshard_func_args: list(type) >= 0",
        "output_types: list(type) >= 1",
        "output_shapes: list(shape) >= 1",
    ],
    shape: shapes::scalar,
    kernels: kernels![any save_v2_kernel],
    cheap: true,
    ..Op::STATEFUL
};

static LOAD_DATASET: Op = Op {
    name: "LoadDataset",
    inputs: &["path: string", "reader_func_other_args: Treader_func_args"],
    outputs: &["handle: variant"],
    attrs: &[
        "output_types: list(type) >= 1",
        "output_shapes: list(shape) >= 1",
        "compression: string = ''",
        "reader_func: func",
        "Treader_func_args: list(type) >= 0",
    ],
    shape: shapes::scalar,
    kernels: kernels![any load_kernel],
    ..Op::STATEFUL
};

static SNAPSHOT_DATASET: Op = Op {
    name: "SnapshotDataset",
    inputs: &["input_dataset: variant", "path: string"],
    outputs: &["handle: variant"],
    attrs: &[
        "output_types: list(type) >= 1",
        "output_shapes: list(shape) >= 1",
        "compression: string = ''",
        "reader_path_prefix: string = ''",
        "writer_path_prefix: string = ''",
        "shard_size_bytes: int = 10737418240",
        "pending_snapshot_expiry_seconds: int = 86400",
        "num_reader_threads: int = 1",
        "reader_buffer_size: int = 1",
        "num_writer_threads: int = 1",
        "writer_buffer_size: int = 1",
        "shuffle_on_read: bool = false",
        "seed: int = 0",
        "seed2: int = 0",
        "mode: string = 'auto'",
        "snapshot_name: string = ''",
    ],
    shape: shapes::scalar,
    kernels: kernels![any snapshot_kernel],
    cheap: true,
    ..Op::PURE
};

static SNAPSHOT_DATASET_V2: Op = Op {
    name: "SnapshotDatasetV2",
    inputs: &[
        "input_dataset: variant",
        "path: string",
        "reader_func_other_args: Treader_func_args",
        "shard_func_other_args: Tshard_func_args",
    ],
    outputs: &["handle: variant"],
    attrs: &[
        "output_types: list(type) >= 1",
        "output_shapes: list(shape) >= 1",
        "compression: string = ''",
        "reader_prefix: string = ''",
        "writer_prefix: string = ''",
        "hash_valid: bool = false",
        "hash: int = 0",
        "reader_func: func",
        "shard_func: func",
        "Treader_func_args: list(type) >= 0",
        "Tshard_func_args: list(type) >= 0",
        "metadata: string = ''",
    ],
    shape: shapes::scalar,
    kernels: kernels![any snapshot_v2_kernel],
    cheap: true,
    ..Op::PURE
};

static SNAPSHOT_DATASET_READER: Op = Op {
    name: "SnapshotDatasetReader",
    inputs: &["shard_dir: string", "start_index: int64"],
    outputs: &["handle: variant"],
    attrs: &[
        "output_types: list(type) >= 1",
        "output_shapes: list(shape) >= 1",
        "compression: string = ''",
        "version: int",
    ],
    shape: shapes::scalar,
    kernels: kernels![any reader_kernel],
    cheap: true,
    ..Op::PURE
};

fn no_outputs(_: &mut ShapeCx<'_>) -> Result<()> {
    Ok(())
}

fn compression_of(init: &Init<'_>) -> Result<Compression> {
    snapshot::compression(&init.attr::<String>("compression")?)
}

/// Writes elements to the shards of a run, as a function of each element chooses.
struct Shards {
    run: PathBuf,
    compression: Compression,
    version: i64,
    types: Arc<[DType]>,
    writers: HashMap<i64, Writer>,
}

impl Shards {
    fn new(run: PathBuf, compression: Compression, version: i64, types: &Arc<[DType]>) -> Result<Shards> {
        file::create_directories(&run)?;
        Ok(Shards { run, compression, version, types: types.clone(), writers: HashMap::new() })
    }

    fn write(&mut self, shard: i64, element: &[Tensor]) -> Result<()> {
        if !self.writers.contains_key(&shard) {
            let directory = match self.version {
                // The first version has no shards.
                MESSAGES => self.run.clone(),
                _ => snapshot::shard_directory(&self.run, shard),
            };
            let writer = Writer::create(&directory, 0, self.compression, self.version, &self.types)?;
            self.writers.insert(shard, writer);
        }
        match self.writers.get_mut(&shard) {
            Some(writer) => writer.write(element),
            None => bail!(Internal, "the writer of shard {shard} is gone"),
        }
    }

    fn finish(&mut self) -> Result<()> {
        self.writers.drain().try_for_each(|(_, writer)| writer.finish())
    }
}

/// The shard that a function chose.
fn shard_index(results: &[Tensor]) -> Result<i64> {
    match results {
        [index] if index.dtype() == DType::Int64 && index.elements() == 1 => Ok(index.flat::<i64>()?[0]),
        _ => bail!(InvalidArgument, "`shard_func` must return a scalar int64."),
    }
}

/// Runs a dataset and writes its elements.
fn save_kernel(init: &Init<'_>) -> Result<Kernel> {
    let (compression, by_function): (Compression, bool) =
        (compression_of(init)?, init.attr("use_shard_func")?);
    let spec = Arc::new(Spec::new(init)?);
    Kernel::future(move |mut cx| {
        let spec = spec.clone();
        async move {
            let (mut run, path, caller, types) = {
                let cx = cx.cx();
                let dataset = Dataset::input(&cx, 0)?;
                let run = OneRun::new(&dataset, cx.step(), "SaveDataset")?;
                let function = spec.function(&cx, "shard_func", 2..cx.num_inputs())?;
                let types: Arc<[DType]> = dataset.types().into();
                let caller = function.caller(&run.cx)?;
                (run, PathBuf::from(path_of(&cx, 1, "path")?), caller, types)
            };
            poll_fn(|task| SourceCx::new(task).leave_io_thread()).await;
            let id = fresh_seed().to_string();
            let mut metadata = snapshot::metadata(&id, RECORDS, &types);
            let mut shards = Shards::new(path.join(&id), compression, RECORDS, &types)?;
            snapshot::write_metadata(&path, &metadata)?;
            while let Some(element) = run.next().await? {
                cx.step().check_cancelled()?;
                metadata.num_elements += 1;
                let shard = if by_function { shard_index(&caller.call(element.clone()).await?)? } else { 0 };
                poll_fn(|task| SourceCx::new(task).leave_io_thread()).await;
                shards.write(shard, &element)?;
            }
            shards.finish()?;
            metadata.finalized = true;
            snapshot::write_metadata(&path, &metadata)?;
            Ok(().into())
        }
    })
}

fn save_v2_kernel(init: &Init<'_>) -> Result<Kernel> {
    let (compression, by_function): (Compression, bool) =
        (compression_of(init)?, init.attr("use_shard_func")?);
    kernel(init, move |cx, spec| {
        let (input, path) = (Dataset::input(cx, 0)?, PathBuf::from(path_of(cx, 1, "path")?));
        let function = spec.function(cx, "shard_func", 2..cx.num_inputs())?;
        let function = by_function.then_some(function);
        let types: Arc<[DType]> = input.types().into();
        Ok(Dataset::new(spec, input.cardinality(), move |cx| {
            let target = Target {
                metadata: path.clone(),
                runs: path.clone(),
                compression,
                version: RECORDS,
                graph_hash: String::new(),
                counts: true,
            };
            Ok(Box::new(Writing::new(input.open(cx)?, target, &types, function.as_ref(), cx)?))
        }))
    })
}

/// The place that elements are written to.
#[derive(Clone)]
struct Target {
    /// The directory with the metadata.
    metadata: PathBuf,
    /// The directory with the runs.
    runs: PathBuf,
    compression: Compression,
    version: i64,
    graph_hash: String,
    /// Keep the number of elements in the metadata.
    counts: bool,
}

/// Passes elements on and writes them, until the end makes the files valid.
struct Writing {
    input: Option<Box<dyn Source>>,
    target: Target,
    types: Arc<[DType]>,
    caller: Option<Caller>,
    element: Element,
    running: Option<(Shards, SnapshotMetadataRecord)>,
}

impl Writing {
    fn new(
        input: Box<dyn Source>,
        target: Target,
        types: &Arc<[DType]>,
        function: Option<&Function>,
        cx: &Arc<IteratorCx>,
    ) -> Result<Writing> {
        let caller = function.map(|function| function.caller(cx)).transpose()?;
        let types = types.clone();
        Ok(Writing { input: Some(input), target, types, caller, element: Vec::new(), running: None })
    }

    fn begin(&mut self) -> Result<()> {
        if self.running.is_some() {
            return Ok(());
        }
        let Target { compression, version, graph_hash, .. } = &self.target;
        let id = fresh_seed().to_string();
        let shards = Shards::new(self.target.runs.join(&id), *compression, *version, &self.types)?;
        let mut metadata = snapshot::metadata(&id, *version, &self.types);
        metadata.graph_hash = graph_hash.clone();
        snapshot::write_metadata(&self.target.metadata, &metadata)?;
        self.running = Some((shards, metadata));
        Ok(())
    }

    fn end(&mut self) -> Result<()> {
        self.input = None;
        if let Some((mut shards, mut metadata)) = self.running.take() {
            shards.finish()?;
            metadata.finalized = true;
            snapshot::write_metadata(&self.target.metadata, &metadata)?;
        }
        Ok(())
    }
}

impl Source for Writing {
    fn poll_next(&mut self, cx: &mut SourceCx<'_, '_>) -> Next {
        ready!(cx.leave_io_thread());
        self.begin()?;
        let Some(input) = &mut self.input else { return END };
        if self.element.is_empty() {
            match ready!(input.poll_next(cx))? {
                Some(element) => self.element = element,
                None => {
                    self.end()?;
                    return END;
                }
            }
        }
        let shard = match &mut self.caller {
            None => 0,
            Some(caller) => {
                if caller.is_idle() {
                    caller.start(self.element.clone());
                }
                shard_index(&ready!(caller.poll(cx))?)?
            }
        };
        let element = std::mem::take(&mut self.element);
        if let Some((shards, metadata)) = &mut self.running {
            shards.write(shard, &element)?;
            metadata.num_elements += self.target.counts as i64;
        }
        Poll::Ready(Ok(Some(element)))
    }
}

/// The format and the element types of the shards of a run.
#[derive(Clone)]
struct Readable {
    compression: Compression,
    version: i64,
    types: Arc<[DType]>,
    shapes: Vec<PartialShape>,
}

impl Readable {
    /// A dataset of the elements of one shard.
    fn shard(&self, directory: String, start: i64) -> Dataset {
        let spec = Spec::internal("SnapshotDatasetReader", self.types.to_vec(), self.shapes.clone());
        let readable = self.clone();
        Dataset::new(&Arc::new(spec), UNKNOWN, move |_| {
            Ok(Box::new(ShardElements {
                directory: PathBuf::from(&directory),
                readable: readable.clone(),
                reader: None,
                skip: start,
            }))
        })
    }

    /// A dataset whose elements are the datasets of the shards.
    fn shards(&self, run: &Path) -> Result<Dataset> {
        let datasets: Vec<Element> = snapshot::shards(run)?
            .into_iter()
            .map(|directory| vec![self.shard(directory, 0).into_tensor()])
            .collect();
        let spec =
            Spec::internal("SnapshotNestedDatasetReader", vec![DType::Variant], vec![PartialShape::scalar()]);
        let elements: Arc<[Element]> = datasets.into();
        Ok(Dataset::new(&Arc::new(spec), elements.len() as i64, move |_| {
            Ok(Box::new(super::window::Elements { elements: elements.clone(), next: 0 }))
        }))
    }
}

struct ShardElements {
    directory: PathBuf,
    readable: Readable,
    reader: Option<Reader>,
    /// Elements that are passed over.
    skip: i64,
}

impl Source for ShardElements {
    fn poll_next(&mut self, cx: &mut SourceCx<'_, '_>) -> Next {
        ready!(cx.leave_io_thread());
        let Readable { compression, version, types, .. } = &self.readable;
        let reader = match &mut self.reader {
            Some(reader) => reader,
            none => none.insert(Reader::open(&self.directory, *compression, *version, types)?),
        };
        while self.skip > 0 {
            ready!(cx.tick());
            if reader.next()?.is_none() {
                return END;
            }
            self.skip -= 1;
        }
        Poll::Ready(reader.next())
    }
}

fn reader_kernel(init: &Init<'_>) -> Result<Kernel> {
    let (compression, version): (Compression, i64) = (compression_of(init)?, init.attr("version")?);
    kernel(init, move |cx, spec| {
        let (directory, start) = (path_of(cx, 0, "shard_dir")?, scalar::<i64>(cx, 1, "start_index")?);
        let (types, shapes): (Arc<[DType]>, _) = (spec.types.as_slice().into(), spec.shapes.clone());
        let readable = Readable { compression, version, types, shapes };
        Ok(Dataset::new(spec, UNKNOWN, move |cx| readable.shard(directory.clone(), start).open(cx)))
    })
}

fn load_kernel(init: &Init<'_>) -> Result<Kernel> {
    let compression = compression_of(init)?;
    kernel(init, move |cx, spec| {
        let path = path_of(cx, 0, "path")?;
        let function = spec.function(cx, "reader_func", 1..cx.num_inputs())?;
        let directory = PathBuf::from(&path);
        let Some(metadata) = snapshot::read_metadata(&directory)? else {
            bail!(NotFound, "Could not find metadata file [{path}]")
        };
        let readable = Readable {
            compression,
            version: metadata.version,
            types: spec.types.as_slice().into(),
            shapes: spec.shapes.clone(),
        };
        let run = directory.join(&metadata.run_id);
        let cardinality = if metadata.num_elements > 0 { metadata.num_elements } else { UNKNOWN };
        Ok(Dataset::new(spec, cardinality, move |cx| {
            Ok(Box::new(Made::new(&function, readable.shards(&run)?, cx, "reader_func")?))
        }))
    })
}

/// The fingerprint of what a snapshot is taken of.
fn graph_hash(input: &Dataset, compression: &str) -> Result<u64> {
    let hash = fingerprint(&to_graph(input)?, registry())?;
    // Different compressions are different snapshots.
    Ok(combine(hash, text(compression)))
}

fn snapshot_v2_kernel(init: &Init<'_>) -> Result<Kernel> {
    let compression = compression_of(init)?;
    let name: String = init.attr("compression")?;
    let name = if name == "AUTO" { "SNAPPY".to_owned() } else { name };
    let known = if init.attr("hash_valid")? { Some(init.attr::<i64>("hash")? as u64) } else { None };
    let prefixes: (String, String) = (init.attr("reader_prefix")?, init.attr("writer_prefix")?);
    let readers = init.attr::<Vec<DType>>("Treader_func_args")?.len();
    kernel(init, move |cx, spec| {
        let (input, path) = (Dataset::input(cx, 0)?, path_of(cx, 1, "path")?);
        let reader = spec.function(cx, "reader_func", 2..2 + readers)?;
        let sharder = spec.function(cx, "shard_func", 2 + readers..cx.num_inputs())?;
        let hash = match known {
            Some(hash) => hash,
            None => graph_hash(&input, &name)?,
        };
        let below = |prefix: &str| joined(prefix, &path).join(hash.to_string());
        let (read_at, write_at) = (below(&prefixes.0), below(&prefixes.1));
        let types: Arc<[DType]> = input.types().into();
        let shapes = spec.shapes.clone();
        Ok(Dataset::new(spec, input.cardinality(), move |cx| {
            file::create_directories(&write_at)?;
            if let Some(metadata) = snapshot::read_metadata(&read_at)?.filter(|metadata| metadata.finalized) {
                let readable = Readable {
                    compression,
                    version: metadata.version,
                    types: types.clone(),
                    shapes: shapes.clone(),
                };
                let shards = readable.shards(&read_at.join(&metadata.run_id))?;
                return Ok(Box::new(Made::new(&reader, shards, cx, "reader_func")?));
            }
            let target = Target {
                metadata: write_at.clone(),
                runs: write_at.clone(),
                compression,
                version: RECORDS,
                graph_hash: hash.to_string(),
                counts: false,
            };
            Ok(Box::new(Writing::new(input.open(cx)?, target, &types, Some(&sharder), cx)?))
        }))
    })
}

/// A path below a prefix, as stock joins them: an absolute path stays below, too.
fn joined(prefix: &str, path: &str) -> PathBuf {
    match prefix {
        "" => PathBuf::from(path),
        _ => Path::new(prefix).join(path.trim_start_matches('/')),
    }
}

/// The first version of snapshots: one directory of files per run.
fn snapshot_kernel(init: &Init<'_>) -> Result<Kernel> {
    let compression = compression_of(init)?;
    let (name, mode): (String, String) = (init.attr("snapshot_name")?, init.attr("mode")?);
    let prefixes: (String, String) = (init.attr("reader_path_prefix")?, init.attr("writer_path_prefix")?);
    let expiry = init.attr::<i64>("pending_snapshot_expiry_seconds")?;
    ensure!(
        matches!(mode.as_str(), "auto" | "read" | "write" | "passthrough"),
        InvalidArgument,
        "mode must be either '', 'auto', 'read', 'write', or 'passthrough'"
    );
    kernel(init, move |cx, spec| {
        let (input, path) = (Dataset::input(cx, 0)?, path_of(cx, 1, "path")?);
        let hash = if name.is_empty() {
            format!("{:016x}", fingerprint(&to_graph(&input)?, registry())?)
        } else {
            name.clone()
        };
        let below = |prefix: &str| joined(prefix, &path).join(&hash);
        let (read_at, write_at) = (below(&prefixes.0), below(&prefixes.1));
        let (types, shapes): (Arc<[DType]>, _) = (input.types().into(), spec.shapes.clone());
        let mode = mode.clone();
        Ok(Dataset::new(spec, input.cardinality(), move |cx| {
            let metadata = snapshot::read_metadata(&read_at)?;
            let reads = match (mode.as_str(), &metadata) {
                ("passthrough", _) => return input.open(cx),
                ("read", None) => bail!(NotFound, "Metadata file does not exist."),
                ("read", Some(_)) => true,
                ("write", _) | (_, None) => false,
                (_, Some(metadata)) if metadata.finalized => true,
                (_, Some(metadata)) => {
                    let now = snapshot::metadata("", MESSAGES, &[]).creation_timestamp;
                    if metadata.creation_timestamp >= now - expiry.saturating_mul(1_000_000) {
                        // Somebody else is writing it.
                        return input.open(cx);
                    }
                    false
                }
            };
            if let Some(metadata) = metadata.filter(|_| reads) {
                let readable = Readable {
                    compression,
                    version: metadata.version,
                    types: types.clone(),
                    shapes: shapes.clone(),
                };
                let run = read_at.join(&metadata.run_id).to_string_lossy().into_owned();
                return readable.shard(run, 0).open(cx);
            }
            let target = Target {
                metadata: write_at.clone(),
                runs: write_at.clone(),
                compression,
                version: MESSAGES,
                graph_hash: hash.clone(),
                counts: false,
            };
            Ok(Box::new(Writing::new(input.open(cx)?, target, &types, None, cx)?))
        }))
    })
}
