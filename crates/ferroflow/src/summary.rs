//! Event files that TensorBoard reads: scalars, histograms, images, text and graphs.

use ferroflow_core::scope::{CollectionItem, Input, OpBuilder, Output, Scope};
use ferroflow_core::{DType, Result, Shape, Tensor, bail, bf16, ensure, f16, status};
use ferroflow_io::events::{EventWriter, wall_time};
use ferroflow_io::image::{encode_png, scale_to_bytes};
use ferroflow_ops::builders as ops;
use ferroflow_ops::histogram::Histogram;
use ferroflow_proto::tensorflow::event::What;
use ferroflow_proto::tensorflow::summary::{Image, Value, value};
use ferroflow_proto::tensorflow::{
    Event, GraphDef, SessionLog, Summary, SummaryMetadata, TaggedRunMetadata, TensorProto, session_log,
    summary_metadata,
};
use prost::Message;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard};

pub use ferroflow_io::events::FlushPolicy;

/// Number of images of a batch that are written.
const MAX_IMAGES: usize = 3;

/// Collection of the summaries that [`scalar`], [`histogram`], [`image`] and [`text`] add, which training loops write.
pub const SUMMARIES: &str = "summaries";

/// Adds a node that summarizes a scalar. Training loops with a directory write it regularly.
///
/// ```
/// use ferroflow::{Graph, summary};
/// # fn main() -> ferroflow::Result<()> {
/// let graph = Graph::new();
/// let s = graph.scope();
/// let loss = s.constant(0.5f32)?;
/// summary::scalar(&s, "loss", &loss)?;
/// # Ok(())
/// # }
/// ```
#[track_caller]
pub fn scalar(scope: &Scope, tag: &str, value: impl Into<Input>) -> Result<Output> {
    let tag_node = tag_node(scope, tag, "tags")?;
    collect(scope.op("ScalarSummary").name(tag).input(&tag_node).input(value))
}

/// Adds a node that summarizes the distribution of a tensor's elements.
#[track_caller]
pub fn histogram(scope: &Scope, tag: &str, values: impl Into<Input>) -> Result<Output> {
    let tag_node = tag_node(scope, tag, "tag")?;
    collect(scope.op("HistogramSummary").name(tag).input(&tag_node).input(values))
}

/// Adds a node that summarizes the first three images of a batch of shape (batch, height, width, channels): bytes, or
/// floats that are scaled to bytes.
///
/// ```
/// use ferroflow::{DType, Graph, ops, summary};
/// # fn main() -> ferroflow::Result<()> {
/// let graph = Graph::new();
/// let s = graph.scope();
/// let digits = ops::Placeholder::new(DType::Float).shape([-1, 8, 8, 1]).build(&s)?;
/// summary::image(&s, "digits", &digits)?;
/// summary::text(&s, "note", "eight by eight")?;
/// let all = summary::merge_all(&s)?.expect("there are two summaries");
/// assert_eq!(all.name(), "Merge/MergeSummary:0");
/// # Ok(())
/// # }
/// ```
#[track_caller]
pub fn image(scope: &Scope, tag: &str, images: impl Into<Input>) -> Result<Output> {
    let tag_node = tag_node(scope, tag, "tag")?;
    let node = scope.op("ImageSummary").name(tag).input(&tag_node).input(images);
    collect(node.attr("max_images", MAX_IMAGES as i64))
}

/// Adds a node that summarizes texts, which TensorBoard shows as Markdown.
///
/// # Errors
///
/// `InvalidArgument` if `texts` are not strings.
#[track_caller]
pub fn text(scope: &Scope, tag: &str, texts: impl Into<Input>) -> Result<Output> {
    let texts = ops::identity(scope, texts)?;
    ensure!(
        texts.dtype() == DType::String,
        InvalidArgument,
        "Expected tensor {} to have dtype string, got {}",
        texts.name(),
        texts.dtype()
    );
    let tag_node = tag_node(scope, tag, "tag")?;
    let metadata = text_metadata().encode_to_vec();
    let metadata = scope.named_constant(
        &format!("{tag}/serialized_summary_metadata"),
        Tensor::scalar(bytes::Bytes::from(metadata)),
    )?;
    collect(scope.op("TensorSummaryV2").name(tag).input(&tag_node).input(&texts).input(&metadata))
}

fn text_metadata() -> SummaryMetadata {
    let plugin = summary_metadata::PluginData { plugin_name: "text".to_owned(), ..Default::default() };
    SummaryMetadata { plugin_data: Some(plugin), ..Default::default() }
}

/// Adds the tag as TensorFlow does: named after the node, with the scope as prefix.
fn tag_node(scope: &Scope, tag: &str, input: &str) -> Result<Output> {
    let full = format!("{}{tag}", scope.prefix());
    scope.named_constant(&format!("{tag}/{input}"), full.as_str())
}

#[track_caller]
fn collect(node: OpBuilder) -> Result<Output> {
    let output = node.build()?.output(0)?;
    output.graph().add_to_collection(SUMMARIES, CollectionItem::Node(output.name()));
    Ok(output)
}

/// Adds a node that merges all summaries of the graph; `None` if there are none.
#[track_caller]
pub fn merge_all(scope: &Scope) -> Result<Option<Output>> {
    let graph = scope.graph();
    let nodes = graph.collection(SUMMARIES).into_iter().filter_map(|item| match item {
        CollectionItem::Node(name) => Some(graph.output(&name)),
        _ => None,
    });
    let summaries = nodes.collect::<Result<Vec<Output>>>()?;
    if summaries.is_empty() {
        return Ok(None);
    }
    merge(scope, &summaries).map(Some)
}

/// Adds a node that merges several summaries.
#[track_caller]
pub fn merge(scope: &Scope, summaries: &[Output]) -> Result<Output> {
    scope.scope("Merge").op("MergeSummary").inputs(summaries).build()?.output(0)
}

/// Event of a session, as event files record it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SessionEvent {
    /// The session started.
    Start,
    /// The session stopped.
    Stop,
    /// The session wrote a checkpoint with this prefix.
    Checkpoint(String),
}

/// Writer of an event file, which any thread can use. Events are flushed when some have accumulated, when some time has
/// passed, and when the writer is dropped.
///
/// ```
/// use ferroflow::summary::SummaryWriter;
/// use ferroflow::Tensor;
/// # fn main() -> ferroflow::Result<()> {
/// # let directory = std::env::temp_dir().join(format!("summaries-{}", std::process::id()));
/// let writer = SummaryWriter::create(&directory)?;
/// for step in 0..3 {
///     writer.scalar("loss", 1.0 / (step + 1) as f32, step)?;
/// }
/// writer.histogram("weights", &Tensor::vector(vec![0.1f32, -0.2, 0.3]), 3)?;
/// writer.text("note", "three *steps*", 3)?;
/// writer.flush()?;
/// # std::fs::remove_dir_all(directory).unwrap();
/// # Ok(())
/// # }
/// ```
pub struct SummaryWriter {
    path: PathBuf,
    /// Event file; locked for short writes only.
    events: Mutex<EventWriter>,
}

impl SummaryWriter {
    /// Creates an event file in `directory`, and the directory if it is missing.
    pub fn create(directory: impl AsRef<Path>) -> Result<SummaryWriter> {
        SummaryWriter::with_policy(directory, "", FlushPolicy::default())
    }

    /// Creates an event file whose name ends with `suffix`, with its own flush policy.
    pub fn with_policy(
        directory: impl AsRef<Path>,
        suffix: &str,
        policy: FlushPolicy,
    ) -> Result<SummaryWriter> {
        let events = EventWriter::create(directory, suffix, policy)?;
        Ok(SummaryWriter { path: events.path().to_owned(), events: Mutex::new(events) })
    }

    /// Returns the path of the event file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes a number.
    pub fn scalar(&self, tag: &str, value: f32, step: i64) -> Result<()> {
        self.value(tag, value::Value::SimpleValue(value), None, step)
    }

    /// Writes the distribution of values.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` if a value is not finite or the tensor does not hold real numbers.
    pub fn histogram(&self, tag: &str, values: &Tensor, step: i64) -> Result<()> {
        let mut histogram = Histogram::default();
        for x in to_f64s(values)? {
            ensure!(!x.is_nan(), InvalidArgument, "Nan in summary histogram for: {tag}");
            ensure!(x.is_finite(), InvalidArgument, "Infinity in Histogram for: {tag}");
            histogram.add(x);
        }
        self.value(tag, value::Value::Histo(histogram.to_proto()), None, step)
    }

    /// Writes an image of shape (height, width, channels), or the first three of a batch of them: bytes, or floats that are
    /// scaled to bytes as in TensorFlow. Channels are gray, RGB or RGBA.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` for other shapes and types.
    pub fn image(&self, tag: &str, images: &Tensor, step: i64) -> Result<()> {
        let shape = images.shape();
        let (count, dims) = match shape.dims() {
            [_, _, _] => (1, shape.dims()),
            [count, rest @ ..] if rest.len() == 3 => (*count as usize, rest),
            _ => bail!(
                InvalidArgument,
                "image '{tag}' has shape {shape}; expected (height, width, channels) or a batch of such images"
            ),
        };
        let (height, width, channels) = (dims[0] as usize, dims[1] as usize, dims[2] as usize);
        ensure!(
            matches!(channels, 1 | 3 | 4),
            InvalidArgument,
            "image '{tag}' has {channels} channels; expected 1 (gray), 3 (RGB) or 4 (RGBA)"
        );
        let size = height * width * channels;
        for number in 0..count.min(MAX_IMAGES) {
            let range = number * size..(number + 1) * size;
            let pixels = match images.dtype() {
                DType::Uint8 => images.flat::<u8>()?[range].to_vec(),
                DType::Float => scale_to_bytes(&images.flat::<f32>()?[range], channels, &[255, 0, 0, 255]),
                other => bail!(
                    InvalidArgument,
                    "image '{tag}' has values of type {other}; expected uint8 or float"
                ),
            };
            let image = Image {
                height: height as i32,
                width: width as i32,
                colorspace: channels as i32,
                encoded_image_string: encode_png(height, width, channels, &pixels)?.into(),
            };
            let tag = if count > 1 { format!("{tag}/image/{number}") } else { format!("{tag}/image") };
            self.value(&tag, value::Value::Image(image), None, step)?;
        }
        Ok(())
    }

    /// Writes text, which TensorBoard shows as Markdown.
    pub fn text(&self, tag: &str, text: &str, step: i64) -> Result<()> {
        // Event files store strings in their own field, not as tensor contents.
        let tensor = TensorProto {
            dtype: DType::String.to_wire(),
            tensor_shape: Some(Shape::vector(1).to_proto()),
            string_val: vec![bytes::Bytes::copy_from_slice(text.as_bytes())],
            ..Default::default()
        };
        self.value(tag, value::Value::Tensor(tensor), Some(text_metadata()), step)
    }

    /// Writes the result of a summary op such as [`merge_all`].
    ///
    /// # Errors
    ///
    /// `InvalidArgument` if the tensor does not hold a summary.
    pub fn serialized(&self, summary: &Tensor, step: i64) -> Result<()> {
        let encoded: bytes::Bytes = summary.to_scalar()?;
        let summary = Summary::decode(encoded).map_err(|error| {
            status!(InvalidArgument, "the tensor does not hold a serialized summary: {error}")
        })?;
        self.event(What::Summary(summary), step)
    }

    /// Writes a graph.
    pub fn graph(&self, graph: &GraphDef, step: i64) -> Result<()> {
        self.event(What::GraphDef(graph.encode_to_vec().into()), step)
    }

    /// Writes an event of a session. After a start, TensorBoard drops later steps that an earlier run wrote.
    pub fn session(&self, event: SessionEvent, step: i64) -> Result<()> {
        let (state, path) = match event {
            SessionEvent::Start => (session_log::SessionStatus::Start, String::new()),
            SessionEvent::Stop => (session_log::SessionStatus::Stop, String::new()),
            SessionEvent::Checkpoint(path) => (session_log::SessionStatus::Checkpoint, path),
        };
        let log = SessionLog { status: state as i32, checkpoint_path: path, ..Default::default() };
        self.event(What::SessionLog(log), step)
    }

    /// Writes the trace of one step: an encoded `RunMetadata`.
    pub fn run_metadata(&self, tag: &str, metadata: impl Into<bytes::Bytes>, step: i64) -> Result<()> {
        let tagged = TaggedRunMetadata { tag: tag.to_owned(), run_metadata: metadata.into() };
        self.event(What::TaggedRunMetadata(tagged), step)
    }

    /// Flushes all events written so far to the file.
    pub fn flush(&self) -> Result<()> {
        self.events().flush()
    }

    fn value(
        &self,
        tag: &str,
        value: value::Value,
        metadata: Option<SummaryMetadata>,
        step: i64,
    ) -> Result<()> {
        let value = Value { tag: tag.to_owned(), metadata, value: Some(value), ..Default::default() };
        self.event(What::Summary(Summary { value: vec![value] }), step)
    }

    fn event(&self, what: What, step: i64) -> Result<()> {
        let event = Event { wall_time: wall_time(), step, what: Some(what), ..Default::default() };
        self.events().write(&event)
    }

    fn events(&self) -> MutexGuard<'_, EventWriter> {
        self.events.lock().expect("writing does not panic")
    }
}

fn to_f64s(tensor: &Tensor) -> Result<Vec<f64>> {
    macro_rules! widen {
        ($($dtype:ident $element:ty),*) => {
            match tensor.dtype() {
                $(DType::$dtype => tensor.flat::<$element>()?.iter().map(|x| num_traits::ToPrimitive::to_f64(x).unwrap_or(f64::NAN)).collect(),)*
                other => bail!(InvalidArgument, "a histogram needs real numbers, but the tensor holds {other}"),
            }
        };
    }
    Ok(
        widen!(Float f32, Double f64, Half f16, Bfloat16 bf16, Int8 i8, Int16 i16, Int32 i32, Int64 i64, Uint8 u8, Uint16 u16, Uint32 u32, Uint64 u64),
    )
}
