//! Tests of the time for which a worker keeps abandoned state, with a paused clock.

use super::*;
use crate::worker::steps::{MAX_FAILED, SWEEP_EVERY};
use ferroflow_core::rendezvous::Rendezvous;
use ferroflow_core::status;

/// Runs a test whose clock advances whenever everything waits.
fn run_without_waiting(test: impl AsyncFnOnce(&Task, RendezvousKey)) {
    let week = Duration::from_secs(7 * 24 * 3600);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let cluster = Cluster::start(1).await;
        tokio::time::pause();
        let test = test(&cluster.tasks[0], cluster.key(0, 0, "out"));
        tokio::time::timeout(week, test).await.expect("the test hangs");
    });
}

#[test]
fn a_step_that_never_begins_is_given_up() {
    run_without_waiting(async |task, key| {
        let worker = task.server.worker();
        let began = tokio::time::Instant::now();
        let given_up = worker.serve_recv_tensor(7, &key.to_string(), 0).await.map(drop).unwrap_err();
        assert_eq!(given_up.code(), Code::Aborted);
        assert!(given_up.message().contains("has not begun here 600 s after"), "{given_up}");
        assert_eq!(began.elapsed().as_secs(), 600);
        assert_eq!(task.census(), Census { sessions: 1, ..Default::default() });
    });
}

#[test]
fn a_step_that_has_begun_may_take_as_long_as_it_wants() {
    run_without_waiting(async |task, key| {
        let worker = task.server.worker();
        let step = worker.step(8);
        let rendezvous = step.rendezvous(&worker.legacy_session);
        let hours = Duration::from_secs(5 * 3600);
        let text = key.to_string();
        let mut receiving = Box::pin(worker.serve_recv_tensor(8, &text, 0));
        assert!(tokio::time::timeout(hours, &mut receiving).await.is_err());
        rendezvous.send(&key, Parcel::new(Tensor::scalar(3f32))).unwrap();
        assert_eq!(receiving.await.unwrap().tensor.flat::<f32>().unwrap(), [3.0]);
        worker.cleanup_step(8);
        assert_eq!(task.census(), Census { sessions: 1, ..Default::default() });
    });
}

#[test]
fn a_failed_step_is_remembered_for_a_while_and_no_longer() {
    run_without_waiting(async |task, key| {
        let worker = task.server.worker();
        worker.step(9).abort(status!(Internal, "broken"));
        tokio::time::advance(Duration::from_secs(599)).await;
        worker.steps.sweep();
        let late = worker.serve_recv_tensor(9, &key.to_string(), 0).await.map(drop).unwrap_err();
        assert_eq!((late.code(), late.message()), (Code::Internal, "broken"));
        worker.step(9).abort(status!(Internal, "broken"));
        tokio::time::advance(Duration::from_secs(601)).await;
        worker.steps.sweep();
        assert_eq!(task.census(), Census { sessions: 1, ..Default::default() });
    });
}

#[test]
fn the_oldest_of_many_failed_steps_are_forgotten() {
    run_without_waiting(async |task, key| {
        let worker = task.server.worker();
        let last = 2 * MAX_FAILED as i64;
        (0..=last).for_each(|id| worker.step(id).abort(status!(Internal, "broken")));
        assert!(task.census().steps <= MAX_FAILED + SWEEP_EVERY, "{:?}", task.census());
        let late = worker.serve_recv_tensor(last, &key.to_string(), 0).await.map(drop).unwrap_err();
        assert_eq!(late.message(), "broken", "the latest are remembered");
    });
}
