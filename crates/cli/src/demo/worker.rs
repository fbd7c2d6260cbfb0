//! A worker of the demonstration: the program that a user would write for a cluster of any size.

use super::Task;
use super::report::Report;
use crate::local;
use ferroflow::data::digits::Digits;
use ferroflow::optimizers::{Adam, Optimizer, SyncReplicas};
use ferroflow::train::{
    Every, MonitoredTrainingSession, RunArgs, RunContext, RunValues, SessionHook, StopAtStep,
    SyncReplicasHook,
};
use ferroflow::{
    ClusterSpec, Code, Graph, Output, ReplicaDeviceSetter, Result, Server, ServerConfig, Session, Status,
    TaskName, Tensor, Variable, global_step, summary,
};
use std::time::{Duration, Instant};

const BATCH: usize = 64;
const HELD_OUT: usize = 360;
const LEARNING_RATE: f64 = 2e-3;

/// How often the chief tells of the loss.
const REPORT_EVERY: Duration = Duration::from_millis(100);

/// How often the chief looks at held-out digits.
const JUDGE_EVERY: Duration = Duration::from_millis(500);

pub(crate) fn run(task: &Task) -> Result<()> {
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
    let chief = task.task_index == 0;
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
    let (training, held_out) = Digits::parse(super::DIGITS)?.split(HELD_OUT, 42)?;
    if chief {
        let judge = Judge {
            accuracy: model.accuracy.clone(),
            feeds: vec![(model.images.clone(), held_out.images), (model.labels.clone(), held_out.labels)],
        };
        session = session.hook(Told::new(&step, &model.loss, judge));
    }
    let batches = training
        .examples()?
        .shard(workers, task.task_index as usize)?
        .shuffle(training.len(), u64::from(task.task_index))
        .repeat()
        .batch(BATCH)
        .prefetch(2);
    let mut batches = batches.iter();
    session.build()?.run_loop(|session| {
        let end = || Status::new(Code::OutOfRange, "the digits have ended");
        let (images, labels) = batches.next().ok_or_else(end)??;
        session.run_step(
            &[(&model.images, images), (&model.labels, labels)],
            &[],
            std::slice::from_ref(&train),
        )?;
        Ok(())
    })
}

/// Judges the model by digits that it is not trained with.
struct Judge {
    accuracy: Output,
    feeds: Vec<(Output, Tensor)>,
}

impl Judge {
    fn judge(&self, session: &Session) -> Result<()> {
        let feeds: Vec<(&Output, Tensor)> =
            self.feeds.iter().map(|(to, value)| (to, value.clone())).collect();
        let values = session.run(&feeds, &[&self.accuracy])?;
        Report::Judged { accuracy: values[0].to_scalar()? }.send();
        Ok(())
    }
}

/// Tells the process that started the demonstration how training goes.
struct Told {
    step: Output,
    loss: Output,
    judge: Judge,
    told: Option<Instant>,
    judged: Option<Instant>,
}

impl Told {
    fn new(step: &Variable, loss: &Output, judge: Judge) -> Told {
        Told { step: step.value().clone(), loss: loss.clone(), judge, told: None, judged: None }
    }
}

impl SessionHook for Told {
    fn after_create_session(&mut self, _: &Session) -> Result<()> {
        Report::Started.send();
        Ok(())
    }

    fn before_run(&mut self, _: &RunContext<'_>) -> Result<RunArgs> {
        let due = self.told.is_none_or(|at| at.elapsed() >= REPORT_EVERY);
        Ok(if due { RunArgs::fetch([&self.step, &self.loss]) } else { RunArgs::default() })
    }

    fn after_run(&mut self, cx: &RunContext<'_>, values: &RunValues<'_>) -> Result<()> {
        let [step, loss] = values.values else { return Ok(()) };
        Report::Trained { step: step.to_scalar()?, loss: loss.to_scalar()? }.send();
        self.told = Some(Instant::now());
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
