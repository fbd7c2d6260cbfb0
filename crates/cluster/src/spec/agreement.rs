//! Comparison of the clusters that two tasks were started with.

use super::{ClusterSpec, TaskName};
use std::fmt;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs, UdpSocket};

/// A task that two clusters place at different addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The task.
    pub task: TaskName,
    /// Its address in the cluster of the task that compares.
    pub here: String,
    /// Its address in the other task's cluster.
    pub there: String,
}

impl ClusterSpec {
    /// Returns the tasks that both clusters list with different addresses. A task that only one of them lists is not a
    /// difference: a task may know only part of a cluster.
    pub fn differences(&self, other: &ClusterSpec) -> Vec<Difference> {
        let compare = |(task, here): (TaskName, &str)| {
            let (here, there) = (here.to_owned(), other.address(&task)?.to_owned());
            (here != there).then_some(Difference { task, here, there })
        };
        self.tasks().filter_map(compare).collect()
    }
}

impl Difference {
    /// Returns whether the two addresses lead to different places, as far as this machine can tell. Resolves names,
    /// which may take a while.
    pub fn matters(&self) -> bool {
        let (Some((here, port)), Some((there, other_port))) =
            (self.here.rsplit_once(':'), self.there.rsplit_once(':'))
        else {
            return true;
        };
        if port != other_port {
            return true;
        }
        let (Some(here), Some(there)) = (addresses(here), addresses(there)) else { return false };
        let shared = here.iter().any(|address| there.contains(address));
        // A task is often called localhost on its own machine.
        let both_local = || here.iter().any(is_local) && there.iter().any(is_local);
        !shared && !both_local()
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Difference { task, here, there } = self;
        write!(f, "/job:{}/task:{} is at {here} here and at {there} there", task.job, task.task)
    }
}

/// Resolves a host; `None` if its name is unknown.
fn addresses(host: &str) -> Option<Vec<IpAddr>> {
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    let found: Vec<IpAddr> = (bare, 0).to_socket_addrs().ok()?.map(|address| address.ip()).collect();
    Some(found)
}

/// Returns whether an address belongs to this machine, which is so if it can be bound.
fn is_local(address: &IpAddr) -> bool {
    address.is_loopback() || UdpSocket::bind(SocketAddr::new(*address, 0)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_that_only_one_side_knows_are_no_difference() {
        let read = |json| ClusterSpec::from_json(json).unwrap();
        let here = read(r#"{"ps": ["a:1"], "worker": ["b:1", "c:1"]}"#);
        let there = read(r#"{"ps": ["a:1", "x:1"], "worker": {"1": "d:1"}}"#);
        let found: Vec<String> = here.differences(&there).iter().map(Difference::to_string).collect();
        assert_eq!(found, ["/job:worker/task:1 is at c:1 here and at d:1 there"]);
    }

    #[test]
    fn two_names_of_one_place_do_not_matter() {
        let matters = |here: &str, there: &str| {
            let (here, there) = (here.to_owned(), there.to_owned());
            Difference { task: TaskName::new("ps", 0), here, there }.matters()
        };
        assert!(!matters("localhost:1", "127.0.0.1:1"));
        assert!(!matters("0.0.0.0:1", "[::1]:1"));
        assert!(!matters("no-such-host.invalid:1", "127.0.0.1:1"));
        assert!(matters("localhost:1", "localhost:2"));
        assert!(matters("192.0.2.1:1", "192.0.2.2:1"));
    }
}
