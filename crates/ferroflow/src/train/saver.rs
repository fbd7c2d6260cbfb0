//! Savers, which save and restore variables and keep the latest checkpoints.

use super::checkpoint_state::{
    CheckpointState, checkpoint_exists, missing, read_checkpoint_state, write_checkpoint_state,
};
use super::saver_nodes::{SaverNodes, add_nodes};
use crate::session::Session;
use crate::variables::{Variable, global_variables};
use bytes::Bytes;
use ferroflow_core::scope::{CollectionItem, Graph, MetaGraph, Operation, Output, Scope};
use ferroflow_core::{Code, Result, Status, Tensor, ensure, status};
use ferroflow_io::file;
use ferroflow_io::path::{is_remote, resolve_path};
use ferroflow_proto::tensorflow::{SaverDef, saver_def::CheckpointFormatVersion};
use prost::Message;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Collection of the savers of a graph.
pub(super) const SAVERS: &str = "savers";

/// Builder of a [`Saver`]; see [`Saver::builder`].
///
/// ```
/// use ferroflow::train::Saver;
/// use ferroflow::{Graph, Session, Variable, variables};
/// # let directory = std::env::temp_dir().join(format!("saver-builder-{}", std::process::id()));
/// # std::fs::create_dir_all(&directory).unwrap();
///
/// let graph = Graph::new();
/// let w = Variable::with_value(&graph.scope(), "w", [1.0f32, 2.0])?;
/// let init = variables::global_variables_initializer(&graph.scope())?;
/// // One file per task that holds variables; the three latest checkpoints are kept.
/// let saver = Saver::builder().variables([w]).sharded(true).max_to_keep(3).build(&graph)?;
/// let session = Session::new(&graph)?;
/// session.execute(&init)?;
/// for step in 0..5 {
///     saver.save(&session, directory.join("model.ckpt"), Some(step))?;
/// }
/// let kept: Vec<String> = saver.last_checkpoints();
/// assert!(kept.len() == 3 && kept[0].ends_with("model.ckpt-2"));
/// # std::fs::remove_dir_all(directory).unwrap();
/// # Ok::<(), ferroflow::Status>(())
/// ```
#[derive(Clone, Debug)]
pub struct SaverBuilder {
    variables: Option<Vec<Variable>>,
    name: String,
    sharded: bool,
    max_to_keep: usize,
    keep_every: Duration,
    allow_empty: bool,
    write_meta_graph: bool,
}

impl SaverBuilder {
    /// Sets the variables to save; all global variables by default.
    pub fn variables(mut self, variables: impl IntoIterator<Item = Variable>) -> Self {
        self.variables = Some(variables.into_iter().collect());
        self
    }

    /// Sets the prefix of the nodes' names; `save` by default.
    pub fn name(mut self, name: &str) -> Self {
        self.name = name.to_owned();
        self
    }

    /// Sets whether every task writes its own variables, in parallel; `false` by default.
    pub fn sharded(mut self, sharded: bool) -> Self {
        self.sharded = sharded;
        self
    }

    /// Sets the number of checkpoints to keep: 5 by default, 0 to keep all.
    pub fn max_to_keep(mut self, count: usize) -> Self {
        self.max_to_keep = count;
        self
    }

    /// Sets how often a checkpoint is kept forever; every 10,000 hours by default.
    pub fn keep_checkpoint_every(mut self, interval: Duration) -> Self {
        self.keep_every = interval;
        self
    }

    /// Sets whether a graph without variables gets a saver that does nothing, instead of an error.
    pub fn allow_empty(mut self, allow: bool) -> Self {
        self.allow_empty = allow;
        self
    }

    /// Sets whether the graph is written beside each checkpoint, for programs that do not build it; `true` by default.
    pub fn write_meta_graph(mut self, write: bool) -> Self {
        self.write_meta_graph = write;
        self
    }

    /// Adds the saver's nodes.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` if there are no variables, unless that is allowed.
    #[track_caller]
    pub fn build(self, graph: &Graph) -> Result<Saver> {
        let variables = match self.variables {
            Some(variables) => variables,
            None => global_variables(graph)?,
        };
        let nodes = if variables.is_empty() {
            ensure!(
                self.allow_empty,
                InvalidArgument,
                "No variables to save; add some before the saver, or allow an empty saver with SaverBuilder::allow_empty"
            );
            None
        } else {
            let scope: Scope = graph.scope().scope(&self.name);
            Some(add_nodes(&scope, &variables, self.sharded)?)
        };
        Ok(Saver {
            nodes,
            sharded: self.sharded,
            max_to_keep: self.max_to_keep,
            keep_every: self.keep_every,
            write_meta_graph: self.write_meta_graph,
            kept: Mutex::new(Kept {
                recent: Vec::new(),
                preserve_after: now() + self.keep_every.as_secs_f64(),
            }),
        })
    }
}

/// Saves and restores the variables of a graph. Checkpoints and the file that lists them have TensorFlow's formats.
///
/// ```
/// use ferroflow::train::Saver;
/// use ferroflow::variables::global_variables_initializer;
/// use ferroflow::{Graph, Session, Variable};
///
/// # let directory = std::env::temp_dir().join(format!("saver-{}", std::process::id()));
/// # std::fs::create_dir_all(&directory).unwrap();
/// let graph = Graph::new();
/// let s = graph.scope();
/// let w = Variable::with_value(&s, "w", [1.0f32, 2.0])?;
/// let init = global_variables_initializer(&s)?;
/// let saver = Saver::new(&graph)?;
/// let session = Session::new(&graph)?;
/// session.execute(&init)?;
/// let path = saver.save(&session, directory.join("model.ckpt"), Some(7))?;
/// assert!(path.ends_with("model.ckpt-7"));
/// saver.restore(&Session::new(&graph)?, &path)?;
/// # std::fs::remove_dir_all(directory).unwrap();
/// # Ok::<(), ferroflow::Status>(())
/// ```
pub struct Saver {
    /// Nodes of the saver; `None` if there is nothing to save.
    nodes: Option<SaverNodes>,
    sharded: bool,
    max_to_keep: usize,
    keep_every: Duration,
    write_meta_graph: bool,
    kept: Mutex<Kept>,
}

struct Kept {
    /// Prefixes of checkpoints and the times when they were written, oldest first.
    recent: Vec<(String, f64)>,
    /// Time after which the next checkpoint is kept forever.
    preserve_after: f64,
}

const UNPOISONED: &str = "nothing panics while checkpoints are listed";

impl Saver {
    /// Adds a saver of all global variables that keeps the five latest checkpoints.
    #[track_caller]
    pub fn new(graph: &Graph) -> Result<Saver> {
        Saver::builder().build(graph)
    }

    /// Starts the description of a saver.
    pub fn builder() -> SaverBuilder {
        SaverBuilder {
            variables: None,
            name: "save".to_owned(),
            sharded: false,
            max_to_keep: 5,
            keep_every: Duration::from_secs(10_000 * 3600),
            allow_empty: false,
            write_meta_graph: true,
        }
    }

    /// Finds a saver in a graph, e.g. in one that was imported.
    pub fn from_def(graph: &Graph, def: &SaverDef) -> Result<Saver> {
        let nodes = SaverNodes {
            filename: graph.output(&def.filename_tensor_name)?,
            save: graph.output(&def.save_tensor_name)?,
            restore: graph.operation(&def.restore_op_name)?,
        };
        let keep_every = Duration::from_secs_f32(def.keep_checkpoint_every_n_hours.clamp(0.0, 1e6) * 3600.0);
        Ok(Saver {
            nodes: Some(nodes),
            sharded: def.sharded,
            max_to_keep: def.max_to_keep.max(0) as usize,
            keep_every,
            write_meta_graph: true,
            kept: Mutex::new(Kept { recent: Vec::new(), preserve_after: now() + keep_every.as_secs_f64() }),
        })
    }

    /// Returns the message that represents the saver in graphs; `None` if there is nothing to save.
    pub fn to_def(&self) -> Option<SaverDef> {
        let nodes = self.nodes.as_ref()?;
        Some(SaverDef {
            filename_tensor_name: nodes.filename.name(),
            save_tensor_name: nodes.save.name(),
            restore_op_name: nodes.restore.name(),
            max_to_keep: self.max_to_keep as i32,
            sharded: self.sharded,
            keep_checkpoint_every_n_hours: self.keep_every.as_secs_f32() / 3600.0,
            version: CheckpointFormatVersion::V2 as i32,
        })
    }

    /// Adds the saver to a collection of the graph, where [`super::Scaffold`] and exports find it.
    pub fn add_to_collection(&self, graph: &Graph) {
        if let Some(def) = self.to_def() {
            graph.add_to_collection(SAVERS, CollectionItem::Bytes(Bytes::from(def.encode_to_vec())));
        }
    }

    /// Writes the checkpoint `prefix-step`, or `prefix` without a step, and returns its prefix. Also lists it in the file
    /// `checkpoint` beside it, and removes checkpoints that are too old.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` if the prefix is empty or its directory does not exist; otherwise the error of the step or the file
    /// system.
    pub fn save(&self, session: &Session, prefix: impl AsRef<Path>, step: Option<i64>) -> Result<String> {
        let prefix = resolve_path(prefix)?.to_string_lossy().into_owned();
        ensure!(
            !prefix.is_empty(),
            InvalidArgument,
            "The path of a checkpoint is empty; name a file to save to"
        );
        let path = match step {
            Some(step) => format!("{prefix}-{step}"),
            None => prefix,
        };
        let Some(nodes) = &self.nodes else { return Ok(path) };
        let directory = parent(&path);
        ensure!(
            is_remote(&directory) || directory.is_dir(),
            InvalidArgument,
            "Parent directory of {path} doesn't exist, can't save; create {} first",
            directory.display()
        );
        let filename = Tensor::scalar(Bytes::from(path.clone()));
        session.run(&[(&nodes.filename, filename)], &[&nodes.save])?;
        if self.write_meta_graph {
            let meta = MetaGraph { saver: self.to_def(), ..MetaGraph::default() };
            let encoded = session.graph().to_meta_graph_def(&meta).encode_to_vec();
            let written = file::write(format!("{path}.meta"), &encoded);
            written.map_err(|error| status!(Internal, "cannot write {path}.meta: {}", error.message()))?;
        }
        self.note(&path, &directory)?;
        Ok(path)
    }

    /// Restores the variables from a checkpoint.
    ///
    /// # Errors
    ///
    /// `NotFound` if the checkpoint does not exist or lacks a variable, `InvalidArgument` if a variable has another shape or
    /// type there, `DataLoss` or `OutOfRange` if its files are damaged.
    pub fn restore(&self, session: &Session, path: impl AsRef<Path>) -> Result<()> {
        let path = resolve_path(path)?.to_string_lossy().into_owned();
        let Some(nodes) = &self.nodes else { return Ok(()) };
        if !checkpoint_exists(&path) {
            return Err(missing(&path));
        }
        let filename = Tensor::scalar(Bytes::from(path.clone()));
        let restored = session.step().feed(&nodes.filename, filename).target(&nodes.restore).run();
        restored.map(drop).map_err(|error: Status| {
            let why = match error.code() {
                Code::OutOfRange | Code::DataLoss => {
                    "; its files are damaged or truncated, so restore an earlier one"
                }
                Code::NotFound => "; most likely a variable of the graph is missing in it",
                Code::InvalidArgument => {
                    "; most likely a variable of the graph has another shape or type there"
                }
                _ => "",
            };
            error.map_message(|message| format!("Restoring from checkpoint {path} failed{why}: {message}"))
        })
    }

    /// Returns the prefixes of the checkpoints that are kept, oldest first.
    pub fn last_checkpoints(&self) -> Vec<String> {
        self.kept.lock().expect(UNPOISONED).recent.iter().map(|(path, _)| path.clone()).collect()
    }

    /// Adopts the checkpoints that a directory lists, so that they count among those to keep.
    pub fn recover_last_checkpoints(&self, directory: impl AsRef<Path>) -> Result<()> {
        let Some(state) = read_checkpoint_state(directory)? else { return Ok(()) };
        let existing = state.all.into_iter().filter(|path| checkpoint_exists(path));
        let modified = |path: &String| {
            file::modified(format!("{path}.index"))
                .ok()
                .and_then(|at| at.duration_since(UNIX_EPOCH).ok())
                .map_or(0.0, |at| at.as_secs_f64())
        };
        self.kept.lock().expect(UNPOISONED).recent =
            existing.map(|path| (path.clone(), modified(&path))).collect();
        Ok(())
    }

    /// Returns the node that takes the prefix of a checkpoint.
    pub fn filename(&self) -> Option<&Output> {
        self.nodes.as_ref().map(|nodes| &nodes.filename)
    }

    /// Returns the operation that restores the variables.
    pub fn restore_op(&self) -> Option<&Operation> {
        self.nodes.as_ref().map(|nodes| &nodes.restore)
    }

    /// Records a new checkpoint and removes those that are too old.
    fn note(&self, path: &str, directory: &Path) -> Result<()> {
        let mut kept = self.kept.lock().expect(UNPOISONED);
        kept.recent.retain(|(recent, _)| recent != path);
        kept.recent.push((path.to_owned(), now()));
        let mut removed = Vec::new();
        if self.max_to_keep > 0 && kept.recent.len() > self.max_to_keep {
            let (oldest, written) = kept.recent.remove(0);
            if written > kept.preserve_after {
                kept.preserve_after += self.keep_every.as_secs_f64();
            } else {
                removed.push(oldest);
            }
        }
        let state = CheckpointState {
            latest: path.to_owned(),
            all: kept.recent.iter().map(|(path, _)| path.clone()).collect(),
            timestamps: kept.recent.iter().map(|(_, written)| *written).collect(),
            last_preserved: Some(kept.preserve_after - self.keep_every.as_secs_f64()),
        };
        // The list is written before files are removed, so that readers find all files that it names.
        write_checkpoint_state(directory, &state)?;
        for path in removed {
            remove(&path);
        }
        Ok(())
    }
}

fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

fn parent(path: &str) -> PathBuf {
    match Path::new(path).parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
        _ => PathBuf::from("."),
    }
}

/// Removes the files of a checkpoint. Failures are only logged: a file that stays does no harm.
fn remove(prefix: &str) {
    let directory = parent(prefix);
    let Some(name) = Path::new(prefix).file_name().and_then(|name| name.to_str()) else { return };
    let is_part = |file: &str| {
        file.strip_prefix(name)
            .is_some_and(|end| end == ".index" || end == ".meta" || end.starts_with(".data-"))
    };
    let files = file::list(&directory).unwrap_or_default().into_iter();
    for path in files.filter(|file| is_part(file)).map(|file| directory.join(file)) {
        if let Err(error) = file::remove(&path) {
            tracing::warn!(file = %path.display(), %error, "An old checkpoint could not be removed.");
        }
    }
}

/// Returns the savers that a graph carries.
pub(super) fn savers_in(graph: &Graph) -> Result<Vec<Saver>> {
    let saver = |item: CollectionItem| match item {
        CollectionItem::Bytes(encoded) => {
            let def = SaverDef::decode(encoded).map_err(|error| {
                status!(InvalidArgument, "collection '{SAVERS}' holds a malformed saver: {error}")
            })?;
            Saver::from_def(graph, &def)
        }
        other => Err(status!(InvalidArgument, "collection '{SAVERS}' holds {other:?}, which is not a saver")),
    };
    graph.collection(SAVERS).into_iter().map(saver).collect()
}
