//! The protocol, with every task in a thread; processes, machines and programs are tested with the binary.

use super::record::{Member, Note, VERSION, seal};
use super::*;
use crate::ReservedPort;
use ferroflow_cluster::spec::{ClusterSpec, TaskName};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, channel};
use std::time::Instant;

/// Longer than anything in these tests takes; where it shows, the test fails.
const LONG: Duration = Duration::from_secs(60);

#[test]
fn tasks_meet_in_a_directory_and_the_last_one_cleans_up() {
    let directory = Directory::new("meet");
    meet(&directory.url());
    assert!(!directory.run().exists(), "the run is over, so its directory should be gone");
}

#[test]
fn tasks_meet_at_one_of_them() {
    let port = ReservedPort::new(None, PortChoice::Any).unwrap();
    meet(&format!("tcp://127.0.0.1:{}/meet", port.port()));
}

/// Three tasks, two of which are told no number, become one cluster, work, and end well.
fn meet(url: &str) {
    let tasks = [("ps", Some(0)), ("worker", None), ("worker", None)];
    let joining = tasks.map(|(job, task)| {
        let meeting = at(url, job, task);
        std::thread::spawn(move || {
            let seat = meeting.enter(&Stop::default()).unwrap();
            let cluster = seat.wait().unwrap();
            (seat, cluster)
        })
    });
    let mut seats: Vec<(Seat, ClusterSpec)> = joining.into_iter().map(|seat| seat.join().unwrap()).collect();
    let mut names: Vec<TaskName> = seats.iter().map(|(seat, _)| seat.task()).collect();
    names.sort();
    assert_eq!(
        names,
        ["ps:1,worker:2"].map(|jobs| jobs.parse::<Topology>().unwrap().tasks().collect::<Vec<_>>())[0]
    );
    let cluster = seats[0].1.clone();
    assert!(seats.iter().all(|(_, other)| *other == cluster));
    for (_, address) in cluster.tasks() {
        assert!(TcpStream::connect(address).is_ok(), "{address} is not listened on");
    }
    let ps = seats.remove(0).0;
    let ended = events(&ps);
    // The one that hosts the board stays until the others have left.
    let leaving: Vec<_> =
        seats.into_iter().map(|(worker, _)| std::thread::spawn(|| worker.leave(0, ""))).collect();
    assert!(matches!(ended.recv_timeout(LONG), Ok(Event::Ended(_))));
    ps.leave(0, "");
    leaving.into_iter().for_each(|worker| worker.join().unwrap());
}

#[test]
fn the_host_of_a_board_goes_with_the_last_of_the_others() {
    let port = ReservedPort::new(None, PortChoice::Any).unwrap();
    for round in 0..10 {
        let url = format!("tcp://127.0.0.1:{}/{round}", port.port());
        let joining = ["ps", "worker"].map(|job| {
            let mut meeting = at(&url, job, Some(0));
            meeting.jobs = "ps:1,worker:1".parse().unwrap();
            meeting.grace = 10 * LONG;
            std::thread::spawn(move || {
                let seat = meeting.enter(&Stop::default()).unwrap();
                seat.wait().unwrap();
                seat
            })
        });
        let (sender, left) = channel();
        for seat in joining {
            let (seat, sender) = (seat.join().unwrap(), sender.clone());
            std::thread::spawn(move || {
                seat.leave(0, "");
                let _ = sender.send(());
            });
        }
        for _ in 0..2 {
            assert!(left.recv_timeout(LONG).is_ok(), "a host stays although all have left");
        }
    }
}

#[test]
fn the_end_of_a_host_is_heard_of_without_its_board() {
    let port = ReservedPort::new(None, PortChoice::Any).unwrap();
    let host = Host::at(&format!("127.0.0.1:{}", port.port())).unwrap();
    let url = format!("tcp://127.0.0.1:{}", port.port());
    let mut worker = at(&url, "worker", Some(0));
    worker.jobs = "ps:1,worker:1".parse().unwrap();
    let worker = std::thread::spawn(move || {
        let seat = worker.enter_hosting(&Stop::default(), Some(host)).unwrap();
        seat.wait().unwrap();
        seat
    });
    let ps = one(&url, "ps").join().unwrap();
    worker.join().unwrap().leave(0, "");
    // The board is gone before this task looks at it for the first time.
    assert!(matches!(events(&ps).recv_timeout(LONG), Ok(Event::Ended(_))));
}

#[test]
fn a_host_does_not_stay_for_the_dead() {
    let port = ReservedPort::new(None, PortChoice::Any).unwrap();
    let host = Host::at(&format!("127.0.0.1:{}", port.port())).unwrap();
    let url = format!("tcp://127.0.0.1:{}", port.port());
    let mut ps = at(&url, "ps", Some(0));
    (ps.jobs, ps.grace) = ("ps:1,worker:1".parse().unwrap(), 10 * LONG);
    let ps = std::thread::spawn(move || {
        let seat = ps.enter_hosting(&Stop::default(), Some(host)).unwrap();
        seat.wait().unwrap();
        seat
    });
    let worker = one(&url, "worker").join().unwrap();
    let ps = ps.join().unwrap();
    drop(worker);
    let (sender, left) = channel();
    std::thread::spawn(move || {
        ps.leave(0, "");
        let _ = sender.send(());
    });
    assert!(left.recv_timeout(LONG).is_ok(), "the host waits for a task that was killed");
}

#[test]
fn records_of_the_dead_and_torn_files_do_no_harm() {
    let directory = Directory::new("stale");
    drop(pair(&directory.url()));
    std::fs::write(directory.run().join("m.worker.0.1"), "{\"version\": 1, \"jo").unwrap();
    std::fs::write(directory.run().join("c.9"), "").unwrap();
    std::fs::write(directory.run().join(".t.1.left-over"), "").unwrap();
    let [ps, worker] = pair(&directory.url());
    assert_eq!((ps.generation(), worker.generation()), (1, 2));
    let spec = ps.inner.state.lock().unwrap().cluster.clone().unwrap();
    assert!(spec.has(&worker.inner.me.incarnation) && spec.epoch == 2);
}

#[test]
fn a_finished_run_of_the_same_name_is_not_taken_for_the_end_of_this_one() {
    let directory = Directory::new("again");
    let [ps, worker] = pair(&directory.url());
    let code = 3;
    worker.leave(code, "a bug");
    ps.leave(code, "a bug");
    let [ps, worker] = pair(&directory.url());
    let told = events(&ps);
    worker.leave(0, "");
    assert!(matches!(told.recv_timeout(LONG), Ok(Event::Ended(_))));
}

#[test]
fn a_second_start_of_a_living_task_is_refused() {
    let directory = Directory::new("twice");
    let first = at(&directory.url(), "worker", Some(0)).enter(&Stop::default()).unwrap();
    let refused = at(&directory.url(), "worker", Some(0)).enter(&Stop::default()).map(drop).unwrap_err();
    assert!(matches!(&refused, Failure::Taken(_)), "{refused}");
    let there = format!("worker:0 is alive at 127.0.0.1:{} (process ", first.inner.me.port);
    assert!(refused.to_string().contains(&there), "{refused}");
    assert_eq!(refused.to_string().matches("127.0.0.1:").count(), 2, "{refused}");
    assert_eq!(refused.into_status().code(), Code::AlreadyExists);
    // One that is about to leave is waited for.
    first.begin_to_leave();
    let mut waiting = at(&directory.url(), "worker", Some(0));
    waiting.timeout = Some(Duration::from_millis(100));
    let ending = waiting.enter(&Stop::default()).map(drop).unwrap_err();
    assert!(matches!(&ending, Failure::TimedOut(message) if message.contains("is ending")), "{ending}");
    // Without a number there is another place.
    let other = at(&directory.url(), "worker", None).enter(&Stop::default()).unwrap();
    assert_eq!(other.task(), TaskName::new("worker", 1));
    drop(first);
    let again = at(&directory.url(), "worker", Some(0)).enter(&Stop::default()).unwrap();
    assert_eq!(again.generation(), 1);
}

#[test]
fn a_task_whose_place_was_taken_while_nobody_reached_it_ends() {
    let directory = Directory::new("superseded");
    let older = at(&directory.url(), "worker", Some(0)).enter(&Stop::default()).unwrap();
    let newer = Member { generation: 1, incarnation: "newer".to_owned(), ..older.inner.me.clone() };
    let board = claim::open(&directory.url().parse().unwrap(), Some(None)).unwrap();
    board.publish(&newer.name(), &seal(&newer).unwrap()).unwrap();
    let given = older.wait().unwrap_err();
    assert!(matches!(&given, Failure::Superseded(_)), "{given}");
    assert!(given.to_string().contains("worker:0 was started again"), "{given}");
}

#[test]
fn a_task_that_serves_has_one_port_and_one_with_a_program_has_two() {
    let directory = Directory::new("ports");
    let mut program = at(&directory.url(), "worker", Some(0));
    program.reserve = true;
    let program = program.enter(&Stop::default()).unwrap();
    assert_ne!(program.inner.me.control, program.inner.me.port);
    let serving = at(&directory.url(), "ps", Some(0)).enter(&Stop::default()).unwrap();
    assert_eq!(serving.inner.me.control, serving.inner.me.port);
}

#[test]
fn different_jobs_do_not_mix_and_both_are_named() {
    let directory = Directory::new("mix");
    let first = at(&directory.url(), "worker", Some(0)).enter(&Stop::default()).unwrap();
    let other = Meeting::new(&directory.url(), "ps:2,worker:1", "ps", Some(0)).unwrap();
    let refused = other.enter(&Stop::default()).map(drop).unwrap_err();
    assert!(matches!(&refused, Failure::Mismatch(_)), "{refused}");
    for part in ["ps:1,worker:2", "ps:2,worker:1", "worker:0"] {
        assert!(refused.to_string().contains(part), "{refused}");
    }
    drop(first);
    // The dead may have meant another cluster.
    assert!(Meeting::new(&directory.url(), "ps:2", "ps", Some(0)).unwrap().enter(&Stop::default()).is_ok());
}

#[test]
fn missing_tasks_are_named_at_the_deadline_and_to_the_others() {
    let directory = Directory::new("missing");
    let patient = at(&directory.url(), "worker", Some(1)).enter(&Stop::default()).unwrap();
    let mut hasty = at(&directory.url(), "worker", Some(0));
    hasty.timeout = Some(Duration::from_millis(300));
    let late = hasty.enter(&Stop::default()).unwrap().wait().unwrap_err();
    assert!(matches!(&late, Failure::TimedOut(_)), "{late}");
    assert!(late.to_string().contains("ps:0 (absent)"), "{late}");
    let told = patient.wait().unwrap_err();
    assert!(matches!(&told, Failure::Peer(_, 75)), "{told}");
}

#[test]
fn a_port_that_somebody_else_has_now_is_not_a_member() {
    let directory = Directory::new("other");
    let stranger = Host::at("127.0.0.1:0").unwrap();
    let board = claim::open(&directory.url().parse().unwrap(), Some(None)).unwrap();
    let dead = Member {
        version: VERSION,
        job: "ps".to_owned(),
        task: 0,
        generation: 0,
        incarnation: "dead".to_owned(),
        hosts: vec!["127.0.0.1".to_owned()],
        port: 1,
        control: stranger.port(),
        host: "here".to_owned(),
        machine: claim::machine(),
        pid: 1,
        jobs: "ps:1,worker:2".to_owned(),
        program: false,
    };
    board.publish(&dead.name(), &seal(&dead).unwrap()).unwrap();
    let mut worker = at(&directory.url(), "worker", Some(0));
    worker.timeout = Some(Duration::from_millis(200));
    let late = worker.enter(&Stop::default()).unwrap().wait().unwrap_err();
    assert!(late.to_string().contains("m.ps.0.0 is stale, another task answers"), "{late}");
}

#[test]
fn a_task_that_is_started_again_keeps_its_port_and_the_cluster_its_name() {
    let directory = Directory::new("restart");
    let [ps, worker] = pair(&directory.url());
    let told = events(&ps);
    let before = worker.inner.me.port;
    drop(worker);
    // The leader is the one that was killed; the next start of it forms the next epoch.
    let worker = one(&directory.url(), "worker").join().unwrap();
    assert_eq!((worker.generation(), worker.inner.me.port), (1, before));
    worker.leave(0, "");
    assert!(matches!(told.recv_timeout(LONG), Ok(Event::Ended(_))));
}

#[test]
fn a_leader_that_runs_already_takes_in_a_restarted_task() {
    let directory = Directory::new("epoch");
    let [ps, worker] = pair(&directory.url());
    let told = events(&worker);
    drop(ps);
    let ps = one(&directory.url(), "ps").join().unwrap();
    assert_eq!(ps.inner.state.lock().unwrap().cluster.as_ref().unwrap().epoch, 2);
    ps.leave(9, "a bug");
    let event = told.recv_timeout(LONG).unwrap();
    assert!(
        matches!(&event, Event::Failed(Failure::Peer(reason, 9)) if reason.contains("a bug")),
        "{event:?}"
    );
}

#[test]
fn a_task_that_moved_is_told_to_those_who_run() {
    let directory = Directory::new("moved");
    let [ps, worker] = pair(&directory.url());
    let (sender, changes) = channel();
    worker.watch(move |change| drop(sender.send(change)), drop).unwrap();
    let before = ps.inner.me.port;
    drop(ps);
    let port = ReservedPort::new(None, PortChoice::Any).unwrap();
    let mut ps = at(&directory.url(), "ps", Some(0));
    (ps.jobs, ps.port) = ("ps:1,worker:1".parse().unwrap(), PortChoice::Fixed(port.port()));
    let ps = ps.enter(&Stop::default()).unwrap();
    let there = ps.wait().unwrap();
    let change = changes.recv_timeout(LONG).unwrap();
    assert_eq!((change.cluster, change.epoch), (there.clone(), 2));
    assert_eq!(change.moved, [TaskName::new("ps", 0)]);
    assert_ne!(port.port(), before);
    assert_eq!(there.address(&change.moved[0]), Some(format!("127.0.0.1:{}", port.port()).as_str()));
}

#[test]
fn fewer_workers_are_enough_where_the_user_says_so() {
    let directory = Directory::new("fewer");
    let join = |task| {
        let mut meeting = at(&directory.url(), "worker", Some(task));
        meeting.jobs = "worker:3".parse().unwrap();
        meeting.min_workers = Some(2);
        std::thread::spawn(move || meeting.enter(&Stop::default()).unwrap().wait().unwrap())
    };
    let joining = [join(0), join(2)];
    for cluster in joining {
        let tasks: Vec<u32> = cluster.join().unwrap().tasks().map(|(task, _)| task.task).collect();
        assert_eq!(tasks, [0, 2]);
    }
}

#[test]
fn a_host_that_dies_is_replaced_by_another_task_of_its_machine() {
    let port = ReservedPort::new(None, PortChoice::Any).unwrap();
    let url = format!("tcp://127.0.0.1:{}", port.port());
    let host = Host::at(&format!("127.0.0.1:{}", port.port())).unwrap();
    let [ps, worker] = pair(&url);
    drop(host);
    let told = events(&ps);
    // Any look at the board makes one of them the host, with all records on it.
    let again = || survey(&url.parse().unwrap()).is_ok_and(|survey| survey.tasks.len() == 2);
    let end = Instant::now() + LONG;
    let _watching = events(&worker);
    while !again() {
        assert!(Instant::now() < end, "nobody took over");
        ps.inner.wake.look();
        worker.inner.wake.look();
        std::thread::yield_now();
    }
    worker.leave(0, "");
    assert!(matches!(told.recv_timeout(LONG), Ok(Event::Ended(_))));
}

#[test]
fn a_note_counts_even_if_the_board_was_lost_with_its_host() {
    let port = ReservedPort::new(None, PortChoice::Any).unwrap();
    let url = format!("tcp://127.0.0.1:{}", port.port());
    let host = Host::at(&format!("127.0.0.1:{}", port.port())).unwrap();
    let [ps, worker] = pair(&url);
    drop(host);
    // It hosts the board for a moment, and takes its own record along.
    worker.leave(0, "");
    let told = events(&ps);
    assert!(matches!(told.recv_timeout(LONG), Ok(Event::Ended(_))));
}

#[test]
fn directories_that_are_not_the_users_own_are_refused() {
    let directory = Directory::new("refused");
    let enter =
        || at(&directory.url(), "ps", None).enter(&Stop::default()).map(drop).unwrap_err().to_string();
    std::fs::create_dir_all(directory.run()).unwrap();
    mode(&directory.run(), 0o777);
    assert!(enter().contains("others can write to the rendezvous directory"), "{}", enter());
    mode(&directory.run(), 0o700);
    mode(&directory.0, 0o777);
    assert!(enter().contains("anybody can replace the rendezvous directory"), "{}", enter());
    mode(&directory.0, 0o700);
    std::fs::remove_dir(directory.run()).unwrap();
    std::fs::write(directory.run(), "").unwrap();
    assert!(enter().contains("rendezvous directory"), "{}", enter());
}

#[test]
fn a_directory_that_vanishes_ends_the_wait() {
    let directory = Directory::new("vanish");
    let seat = at(&directory.url(), "ps", None).enter(&Stop::default()).unwrap();
    std::fs::remove_dir_all(directory.run()).unwrap();
    let gone = seat.wait().unwrap_err();
    assert!(gone.to_string().contains("is gone"), "{gone}");
}

#[test]
fn waits_end_when_they_are_asked_to() {
    let directory = Directory::new("stop");
    let stop = Stop::default();
    let seat = at(&directory.url(), "ps", None).enter(&stop).unwrap();
    let waiting = std::thread::spawn(move || seat.wait().unwrap_err());
    stop.stop();
    assert!(matches!(waiting.join().unwrap(), Failure::Stopped));
}

#[test]
fn notes_of_strangers_are_not_believed() {
    let directory = Directory::new("stranger");
    let seat = at(&directory.url(), "ps", None).enter(&Stop::default()).unwrap();
    let incarnation = "guessed".to_owned();
    let reason = String::new();
    seat.inner.wake.tell(Note { job: "worker".to_owned(), task: 0, incarnation, code: 1, reason });
    let view = seat.inner.look(&mut seat.inner.state.lock().unwrap()).unwrap();
    assert!(view.notes.is_empty());
}

#[test]
fn runs_of_the_dead_are_found_and_removed() {
    let directory = Directory::new("garbage");
    let dead = format!("file://{}/dead", directory.0.display());
    let living = format!("file://{}/living", directory.0.display());
    drop(at(&dead, "ps", None).enter(&Stop::default()).unwrap());
    let seat = at(&living, "ps", None).enter(&Stop::default()).unwrap();
    std::fs::create_dir(directory.0.join("notes")).unwrap();
    std::fs::write(directory.0.join("notes/mine.txt"), "").unwrap();
    assert!(collect_garbage(&directory.0, LONG, false).unwrap().is_empty());
    let found = [directory.0.join("dead")];
    assert_eq!(collect_garbage(&directory.0, Duration::ZERO, true).unwrap(), found);
    assert_eq!(collect_garbage(&directory.0, Duration::ZERO, false).unwrap(), found);
    assert!(!found[0].exists() && directory.0.join("notes/mine.txt").exists());
    let there = survey(&living.parse().unwrap()).unwrap();
    assert_eq!(
        (there.tasks.len(), there.tasks[0].state, there.jobs.as_deref()),
        (1, "there", Some("ps:1,worker:2"))
    );
    drop(seat);
}

#[test]
fn mistakes_are_named_before_anything_is_published() {
    let directory = Directory::new("mistakes");
    let refused = |change: fn(&mut Meeting)| {
        let mut meeting = at(&directory.url(), "worker", None);
        change(&mut meeting);
        meeting.enter(&Stop::default()).map(drop).unwrap_err().to_string()
    };
    let message = refused(|meeting| meeting.job = "chief".to_owned());
    assert!(message.contains("job chief is not among"), "{message}");
    let message = refused(|meeting| meeting.task = Some(2));
    assert!(message.contains("no worker:2"), "{message}");
    let message = refused(|meeting| meeting.min_workers = Some(3));
    assert!(message.contains("have 2"), "{message}");
    let message = refused(|meeting| meeting.jobs = "ps:1,worker:*".parse().unwrap());
    assert!(message.contains("must be known"), "{message}");
    assert!(!directory.run().exists());
}

fn at(url: &str, job: &str, task: Option<u32>) -> Meeting {
    let mut meeting = Meeting::new(url, "ps:1,worker:2", job, task).unwrap();
    meeting.advertise = Some("127.0.0.1".to_owned());
    meeting.grace = Duration::ZERO;
    meeting.timeout = Some(LONG);
    meeting
}

/// A parameter server and a worker, which leads.
fn pair(url: &str) -> [Seat; 2] {
    ["ps", "worker"].map(|job| one(url, job)).map(|seat| seat.join().unwrap())
}

fn one(url: &str, job: &str) -> std::thread::JoinHandle<Seat> {
    let mut meeting = at(url, job, Some(0));
    meeting.jobs = "ps:1,worker:1".parse().unwrap();
    std::thread::spawn(move || {
        let seat = meeting.enter(&Stop::default()).unwrap();
        seat.wait().unwrap();
        seat
    })
}

fn events(seat: &Seat) -> Receiver<Event> {
    let (sender, receiver) = channel();
    seat.watch(drop, move |event| drop(sender.send(event))).unwrap();
    receiver
}

fn mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

/// A directory that is gone after the test.
struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Directory {
        let path = std::env::temp_dir().join(format!("ferroflow-rendezvous-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        mode(&path, 0o700);
        Directory(path)
    }

    fn run(&self) -> PathBuf {
        self.0.join("run")
    }

    fn url(&self) -> String {
        format!("file://{}", self.run().display())
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
