//! The elements of a dataset in files, in stock's layout: a checkpoint with one tensor per component of each element.
//!
//! The first run writes `PREFIX_0` under a lock file and makes it `PREFIX` at its end; later runs read that.

use super::{END, Element, Next, Source, SourceCx};
use ferroflow_core::{Code, Result, bail, ensure};
use ferroflow_io::bundle::{self, BundleReader, BundleWriter};
use ferroflow_io::file;
use std::path::Path;
use std::task::{Poll, ready};

/// The most elements that stock's names of tensors leave room for.
const MAX_ELEMENTS: usize = 10_000_000;
/// The width of an element's number in a name.
const ELEMENT_WIDTH: usize = 7;

/// The name of a component's tensor, such that names sort like elements and components.
fn tensor_name(element: usize, component: usize, components: usize) -> String {
    let width = (components.max(1) - 1).to_string().len();
    format!("{element:>ELEMENT_WIDTH$}_{component:>width$}")
}

/// Returns whether a run has been kept under this prefix.
pub(crate) fn is_complete(prefix: &str) -> Result<bool> {
    file::exists(format!("{prefix}.index"))
}

/// Reads the elements that a run has kept.
pub(crate) struct CachedElements {
    prefix: String,
    reader: Option<BundleReader>,
    components: usize,
    next: usize,
}

impl CachedElements {
    pub(crate) fn new(prefix: &str, components: usize) -> CachedElements {
        CachedElements { prefix: prefix.to_owned(), reader: None, components, next: 0 }
    }

    fn read(&mut self) -> Result<Option<Element>> {
        let reader = match &mut self.reader {
            Some(reader) => reader,
            none => none.insert(BundleReader::open(&self.prefix)?),
        };
        let name = |component| tensor_name(self.next, component, self.components);
        match reader.lookup(&name(0)) {
            Err(error) if error.code() == Code::NotFound => return Ok(None),
            found => found?,
        };
        let element = (0..self.components).map(|component| reader.read(&name(component)));
        let element = element.collect::<Result<Element>>()?;
        self.next += 1;
        Ok(Some(element))
    }
}

impl Source for CachedElements {
    fn poll_next(&mut self, cx: &mut SourceCx<'_, '_>) -> Next {
        ready!(cx.leave_io_thread());
        Poll::Ready(self.read())
    }
}

/// Passes elements on and keeps them in files.
pub(crate) struct CachingElements {
    input: Option<Box<dyn Source>>,
    prefix: String,
    /// The prefix of the files until they are complete.
    partial: String,
    components: usize,
    writer: Option<BundleWriter>,
    written: usize,
}

impl CachingElements {
    pub(crate) fn new(input: Box<dyn Source>, prefix: &str, components: usize) -> CachingElements {
        CachingElements {
            input: Some(input),
            prefix: prefix.to_owned(),
            partial: format!("{prefix}_0"),
            components,
            writer: None,
            written: 0,
        }
    }

    fn lock_file(&self) -> String {
        format!("{}.lockfile", self.partial)
    }

    fn begin(&mut self) -> Result<()> {
        if self.writer.is_some() || self.input.is_none() {
            return Ok(());
        }
        let (partial, lock) = (&self.partial, self.lock_file());
        ensure!(
            !file::exists(format!("{partial}.index"))?,
            AlreadyExists,
            "Existing cache files found: {partial}.index and its data. Delete them to continue."
        );
        if file::exists(&lock)? {
            let holder = String::from_utf8_lossy(&file::read(&lock)?).into_owned();
            bail!(
                AlreadyExists,
                "There appears to be a concurrent caching iterator running - cache lockfile already exists ('{lock}'). \
                 If no other program uses this cache, delete the lockfile and initialize the iterator again. \
                 Lockfile contents: {holder}"
            )
        }
        let folder = Path::new(partial).parent().filter(|folder| !folder.as_os_str().is_empty());
        folder.map_or(Ok(()), file::create_directories)?;
        file::write(&lock, format!("Created by process {}", std::process::id()).as_bytes())?;
        self.writer = Some(BundleWriter::create(partial)?);
        Ok(())
    }

    fn keep(&mut self, element: &Element) -> Result<()> {
        ensure!(
            self.written < MAX_ELEMENTS,
            InvalidArgument,
            "Upstream iterator is producing more than {MAX_ELEMENTS} items, which is more than the cache limit."
        );
        ensure!(
            element.len() == self.components,
            Internal,
            "Upstream iterator returned invalid number of tensors. Expected {} got: {}",
            self.components,
            element.len()
        );
        if let Some(writer) = &mut self.writer {
            for (component, tensor) in element.iter().enumerate() {
                writer.add(&tensor_name(self.written, component, self.components), tensor)?;
            }
        }
        self.written += 1;
        Ok(())
    }

    fn end(&mut self) -> Result<()> {
        self.input = None;
        if let Some(writer) = self.writer.take() {
            writer.finish()?;
            bundle::merge(std::slice::from_ref(&self.partial), &self.prefix, false)?;
            file::remove(self.lock_file())?;
        }
        Ok(())
    }
}

impl Source for CachingElements {
    fn poll_next(&mut self, cx: &mut SourceCx<'_, '_>) -> Next {
        ready!(cx.leave_io_thread());
        self.begin()?;
        let Some(input) = &mut self.input else { return END };
        let next = ready!(input.poll_next(cx))?;
        match &next {
            Some(element) => self.keep(element)?,
            None => self.end()?,
        }
        Poll::Ready(Ok(next))
    }
}

impl Drop for CachingElements {
    fn drop(&mut self) {
        // A run that did not reach its end leaves nothing behind.
        if self.writer.take().is_some() {
            let _ = file::remove(self.lock_file());
        }
    }
}
