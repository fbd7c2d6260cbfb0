//! A worker of the demonstration: the program that a user would write for a cluster of any size.

use super::Task;
use super::report::Report;
use crate::exit::of_signal;
use crate::{local, signals};
use ferroflow::data::digits::Digits;
use ferroflow::optimizers::{Adam, Optimizer, SyncReplicas};
use ferroflow::train::{
    Every, MonitoredTrainingSession, RunArgs, RunContext, RunValues, SessionHook, StopAtStep,
    SyncReplicasHook,
};
use ferroflow::{
    ClusterSpec, Code, Graph, Output, ReplicaDeviceSetter, Result, Server, ServerConfig, Session, Status,
    TaskName, Tensor, Variable, global_step,
    summary::{self, SummaryWriter},
};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

const BATCH: usize = 64;
const HELD_OUT: usize = 360;
const LEARNING_RATE: f64 = 2e-3;

/// The interval at which the chief reports the loss.
const REPORT_EVERY: Duration = Duration::from_millis(100);

/// The interval at which the chief measures the accuracy on held-out digits.
const JUDGE_EVERY: Duration = Duration::from_millis(500);

/// The time that the end of training may take after a signal.
const END_WITHIN: Duration = Duration::from_secs(15);

pub(crate) fn run(task: &Task) -> Result<()> {
    let chief = task.task_index == 0;
    // The others have nothing to save.
    let phase = if chief { Phase::hear_signals()? } else { Phase::default() };
    let listener = local::inherit_socket().map_err(|error| Status::new(Code::FailedPrecondition, error))?;
    let cluster = ClusterSpec::from_json(&task.cluster)?;
    let name = TaskName::new("worker", task.task_index);
    let workers = cluster.num_tasks("worker");
    let config = ServerConfig { task: name.clone(), cluster: cluster.clone(), ..ServerConfig::default() };
    let server = Server::start(config, ferroflow::registry(), vec![listener], std::future::pending())?;

    let graph = Graph::new();
    let device = format!("/job:worker/task:{}", task.task_index);
    let s = ReplicaDeviceSetter::new(&cluster).worker_device(&device).apply(&graph.scope());
    let step = global_step(&s)?;
    let model = task.model.build(&s)?;
    let adam = Adam::new(LEARNING_RATE);
    let mut session = MonitoredTrainingSession::new(&graph)
        .target(&server)
        .chief(chief)
        .checkpoint_dir(&task.dir)
        .save_checkpoint(Every::Steps((task.last_step / 4).max(100)))
        .hook(StopAtStep::last(task.last_step));
    let train = if task.sync {
        let sync = SyncReplicas::new(adam, workers).minimize(&s, &model.loss, &step)?;
        session = session.hook(SyncReplicasHook::new(&sync, chief));
        sync.train
    } else {
        adam.minimize(&s, &model.loss, Some(&step))?
    };
    summary::scalar(&s, "loss", &model.loss)?;
    let (training, held_out) = Digits::bundled()?.split(HELD_OUT, 42)?;
    if chief {
        let judge = Judge {
            accuracy: model.accuracy.clone(),
            step: step.value().clone(),
            feeds: vec![(model.images.clone(), held_out.images), (model.labels.clone(), held_out.labels)],
            // A run of its own in TensorBoard, which reads one file of a directory at a time.
            directory: task.dir.join("eval"),
            writer: None,
        };
        session = session.hook(ProgressReports::new(&step, &model.loss, judge));
    }
    let batches = training
        .examples()?
        .shard(workers, task.task_index as usize)?
        .shuffle(training.len(), u64::from(task.task_index))
        .repeat()
        .batch(BATCH)
        .prefetch(2);
    let mut batches = batches.iter();
    let session = session.build()?;
    phase.begin_training();
    session.run_loop(|session| {
        if phase.is_over() {
            session.request_stop();
            return Ok(());
        }
        let end = || Status::new(Code::OutOfRange, "the digits have ended");
        let (images, labels) = batches.next().ok_or_else(end)??;
        session.run_step(&[(&model.images, images), (&model.labels, labels)], &[], &[&train])?;
        Ok(())
    })
}

/// The phase of training, which decides what a signal means: before training begins nothing is lost, later the model is
/// saved.
#[derive(Clone, Default)]
struct Phase(Arc<AtomicU8>);

impl Phase {
    // Before it, a phase is 0: the session is being opened.
    const TRAINING: u8 = 1;
    const ENDING: u8 = 2;

    /// Lets a signal end the process or the training from now on.
    fn hear_signals() -> Result<Phase> {
        let phase = Phase::default();
        let heard = phase.clone();
        let hear = signals::hear(move |signal| {
            let order = Ordering::SeqCst;
            if heard.0.compare_exchange(Phase::TRAINING, Phase::ENDING, order, order).is_err() {
                std::process::exit(of_signal(signal).into());
            }
            // A cluster that is ending, too, may not let the session close.
            std::thread::spawn(move || {
                std::thread::park_timeout(END_WITHIN);
                std::process::exit(of_signal(signal).into());
            });
            true
        });
        hear.map_err(|error| Status::new(Code::FailedPrecondition, error))?;
        Ok(phase)
    }

    fn begin_training(&self) {
        self.0.store(Phase::TRAINING, Ordering::SeqCst);
    }

    fn is_over(&self) -> bool {
        self.0.load(Ordering::SeqCst) == Phase::ENDING
    }
}

/// Judges the model by digits that it is not trained with.
struct Judge {
    accuracy: Output,
    step: Output,
    feeds: Vec<(Output, Tensor)>,
    /// The directory of the results for TensorBoard.
    directory: PathBuf,
    writer: Option<SummaryWriter>,
}

impl Judge {
    fn judge(&mut self, session: &Session) -> Result<()> {
        let feeds: Vec<(&Output, Tensor)> =
            self.feeds.iter().map(|(to, value)| (to, value.clone())).collect();
        let values = session.run(&feeds, &[&self.accuracy, &self.step])?;
        let (accuracy, step) = (values[0].to_scalar()?, values[1].to_scalar()?);
        Report::Judged { step, accuracy }.send();
        let writer = writer(&mut self.writer, &self.directory)?;
        writer.scalar("accuracy", accuracy, step)?;
        writer.flush()
    }
}

fn writer<'a>(writer: &'a mut Option<SummaryWriter>, directory: &Path) -> Result<&'a SummaryWriter> {
    match writer {
        Some(writer) => Ok(writer),
        None => Ok(writer.insert(SummaryWriter::create(directory)?)),
    }
}

/// Reports the progress of training to the process that started the demonstration.
struct ProgressReports {
    step: Output,
    loss: Output,
    judge: Judge,
    reported: Option<Instant>,
    judged: Option<Instant>,
}

impl ProgressReports {
    fn new(step: &Variable, loss: &Output, judge: Judge) -> ProgressReports {
        let (step, loss) = (step.value().clone(), loss.clone());
        ProgressReports { step, loss, judge, reported: None, judged: None }
    }
}

impl SessionHook for ProgressReports {
    fn after_create_session(&mut self, _: &Session) -> Result<()> {
        Report::Started.send();
        Ok(())
    }

    fn before_run(&mut self, _: &RunContext<'_>) -> Result<RunArgs> {
        let due = self.reported.is_none_or(|at| at.elapsed() >= REPORT_EVERY);
        Ok(if due { RunArgs::fetch([&self.step, &self.loss]) } else { RunArgs::default() })
    }

    fn after_run(&mut self, cx: &RunContext<'_>, values: &RunValues<'_>) -> Result<()> {
        let [step, loss] = values.values else { return Ok(()) };
        Report::Trained { step: step.to_scalar()?, loss: loss.to_scalar()? }.send();
        self.reported = Some(Instant::now());
        if self.judged.is_none_or(|at| at.elapsed() >= JUDGE_EVERY) {
            self.judged = Some(Instant::now());
            self.judge.judge(cx.session())?;
        }
        Ok(())
    }

    fn end(&mut self, session: &Session) -> Result<()> {
        self.judge.judge(session)
    }
}
