//! The board as one task knows it: every record that was ever whole is read once.

use super::board::{Board, Listing};
use super::record::{self, Cluster, Member, Note, Record};
use ferroflow_cluster::logged_wait::log_while;
use ferroflow_cluster::spec::TaskName;
use ferroflow_core::Result;
use std::collections::{BTreeMap, HashMap, HashSet};

/// A board and the records that were read from it.
pub(super) struct Table {
    board: Box<dyn Board>,
    era: String,
    known: HashMap<String, Record>,
    /// The records of this task, which it puts back if they got lost.
    own: Vec<(String, String)>,
    /// True while this task leaves: records of it that another task removes are not put back.
    leaving: bool,
    /// True once another task has removed them.
    cleaned_up: bool,
}

/// The records on a board at one moment.
#[derive(Clone, Debug, Default)]
pub(super) struct View {
    /// The newest start of every task.
    pub(super) members: BTreeMap<TaskName, Member>,
    /// The newest cluster.
    pub(super) cluster: Option<Cluster>,
    pub(super) notes: Vec<Note>,
}

impl View {
    /// Returns the note of the start of a task with this incarnation; `None` while it has published none.
    pub(super) fn note_of(&self, incarnation: &str) -> Option<&Note> {
        self.notes.iter().find(|note| note.incarnation == incarnation)
    }
}

impl Table {
    pub(super) fn new(board: Box<dyn Board>) -> Table {
        Table {
            board,
            era: String::new(),
            known: HashMap::new(),
            own: Vec::new(),
            leaving: false,
            cleaned_up: false,
        }
    }

    /// Lists the board and reads what is new.
    pub(super) fn look(&mut self) -> Result<View> {
        log_while(self.board.place(), "it does not answer", || self.look_now())
    }

    fn look_now(&mut self) -> Result<View> {
        let Listing { names, era } = self.board.list()?;
        let mut names: HashSet<String> = names.into_iter().collect();
        let anew = era != self.era;
        if anew {
            self.era = era;
            self.known.clear();
        }
        let put_back = !self.leaving || (anew && !self.board.is_lasting());
        for (name, text) in &self.own {
            if names.contains(name) {
                continue;
            }
            if !put_back {
                self.cleaned_up = true;
            } else if self.board.publish(name, text)? {
                names.insert(name.clone());
            }
        }
        self.known.retain(|name, _| names.contains(name));
        for name in names {
            if !self.known.contains_key(&name)
                && let Some(text) = self.board.read(&name)?
                && let Some(record) = record::read(&name, &text)
            {
                self.known.insert(name, record);
            }
        }
        Ok(self.view())
    }

    /// Publishes a record; returns whether the name was free.
    pub(super) fn publish(&mut self, name: String, text: String) -> Result<bool> {
        let publish = || self.board.publish(&name, &text);
        let done = log_while(self.board.place(), "it does not answer", publish)?;
        if done {
            self.own.push((name, text));
        }
        Ok(done)
    }

    /// Publishes no record again that another task removes, because this task leaves.
    pub(super) fn leave(&mut self) {
        self.leaving = true;
    }

    /// Returns whether the last task to leave has removed the records.
    pub(super) fn is_cleaned_up(&self) -> bool {
        self.cleaned_up
    }

    pub(super) fn remove_all(&mut self) -> Result<()> {
        self.own.clear();
        self.board.remove_all()
    }

    pub(super) fn is_host(&self) -> bool {
        self.board.is_host()
    }

    fn view(&self) -> View {
        let mut view = View::default();
        for record in self.known.values() {
            match record {
                Record::Member(member) => {
                    let slot = view.members.entry(member.task_name()).or_insert_with(|| member.clone());
                    if slot.generation < member.generation {
                        *slot = member.clone();
                    }
                }
                Record::Cluster(cluster) => {
                    if view.cluster.as_ref().is_none_or(|known| known.epoch < cluster.epoch) {
                        view.cluster = Some(cluster.clone());
                    }
                }
                Record::Note(note) => view.notes.push(note.clone()),
            }
        }
        view
    }
}
