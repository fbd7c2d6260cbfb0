//! Reads the tensors of a checkpoint by name, without a graph or a session.

use super::checkpoint_state::{latest_checkpoint, read_checkpoint_state};
use crate::{Result, Tensor};
use ferroflow_core::{bail, status};
use ferroflow_io::bundle::{self, BundleReader, StoredTensor, TensorSlice};
use ferroflow_io::path::{checkpoint_prefix, resolve_path};
use ferroflow_io::v1::V1Reader;

/// An open checkpoint, as `tf.train.load_checkpoint` gives one in Python. Programs of TensorFlow and of Ferroflow write the
/// same files.
///
/// ```
/// use ferroflow::train::{CheckpointReader, Saver};
/// use ferroflow::{Graph, Session, Variable, initializers, variables};
/// # let directory = std::env::temp_dir().join(format!("reader-{}", std::process::id()));
/// # std::fs::create_dir_all(&directory).unwrap();
///
/// let graph = Graph::new();
/// Variable::new(&graph.scope(), "weights", [2, 3], initializers::ones())?;
/// let init = variables::global_variables_initializer(&graph.scope())?;
/// let saver = Saver::builder().build(&graph)?;
/// let session = Session::new(&graph)?;
/// session.execute(&init)?;
/// saver.save(&session, directory.join("model.ckpt"), None)?;
///
/// let checkpoint = CheckpointReader::open(directory.to_str().unwrap())?;
/// assert_eq!(checkpoint.tensors()[0].name, "weights");
/// assert_eq!(checkpoint.read("weights")?.flat::<f32>()?, [1.0; 6]);
/// # std::fs::remove_dir_all(directory).unwrap();
/// # Ok::<(), ferroflow::Status>(())
/// ```
pub struct CheckpointReader {
    prefix: String,
    tensors: Vec<StoredTensor>,
    files: Files,
}

/// The files of a checkpoint, by format.
enum Files {
    Bundle(Box<BundleReader>),
    V1(V1Reader),
}

impl CheckpointReader {
    /// Opens a checkpoint by its prefix (`model.ckpt-100`), by the name of its index file, or the latest one of a directory.
    ///
    /// # Errors
    ///
    /// `NotFound` if there is no checkpoint under this name, `DataLoss` if its index is damaged.
    pub fn open(path: &str) -> Result<CheckpointReader> {
        let prefix = prefix_of(path)?;
        if bundle::exists(&prefix)? {
            let reader = BundleReader::open(&prefix)?;
            return Ok(CheckpointReader {
                tensors: reader.tensors()?,
                files: Files::Bundle(Box::new(reader)),
                prefix,
            });
        }
        let reader = V1Reader::open(&prefix)?;
        Ok(CheckpointReader { tensors: reader.tensors(), files: Files::V1(reader), prefix })
    }

    /// The prefix that all files of the checkpoint share.
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// The tensors, in the order of their names.
    pub fn tensors(&self) -> &[StoredTensor] {
        &self.tensors
    }

    /// Looks up a tensor without reading its values.
    pub fn get(&self, name: &str) -> Option<&StoredTensor> {
        let at = self.tensors.binary_search_by(|tensor| tensor.name.as_str().cmp(name)).ok()?;
        Some(&self.tensors[at])
    }

    /// Reads a tensor, assembled from its parts if it was partitioned, and checks its checksums.
    ///
    /// # Errors
    ///
    /// `NotFound` if the checkpoint has no such tensor, `DataLoss` if a file is damaged.
    pub fn read(&self, name: &str) -> Result<Tensor> {
        let Some(stored) = self.get(name) else {
            bail!(NotFound, "the checkpoint {} has no tensor {name}", self.prefix)
        };
        match &self.files {
            Files::Bundle(reader) => reader.read(name),
            Files::V1(reader) => reader.read_slice(name, &TensorSlice::whole(stored.shape.rank())),
        }
    }
}

/// Finds the prefix that a user means.
fn prefix_of(path: &str) -> Result<String> {
    let resolved = checkpoint_prefix(path)?;
    if let Some(prefix) = resolved.strip_suffix(".index")
        && bundle::exists(prefix)?
    {
        return Ok(prefix.to_owned());
    }
    if bundle::exists(resolved)? {
        return Ok(resolved.to_owned());
    }
    if let Some(latest) = latest_checkpoint(path)? {
        return Ok(latest);
    }
    if let Some(state) = read_checkpoint_state(path)? {
        bail!(NotFound, "{path} names {} as its latest checkpoint, whose files are not there", state.latest);
    }
    if resolve_path(path)?.is_file() {
        return Ok(resolved.to_owned());
    }
    Err(status!(
        NotFound,
        "{path} is neither the prefix of a checkpoint ({path}.index is missing) nor a directory with a file named \
         'checkpoint'"
    ))
}
