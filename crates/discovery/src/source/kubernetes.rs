//! Names of pods. A StatefulSet and an indexed Job call theirs `<set>-<job>-<n>`, a JobSet `<set>-<job>-<replica>-<n>`;
//! with a headless service, `<pod>.<service>` is where a pod is reached. (Kubeflow's operator writes `TF_CONFIG`.)

use super::{Found, Says};
use crate::role::RoleRequest;
use crate::{Environment, Topology};
use ferroflow_cluster::spec::{ClusterSpec, TaskName};
use ferroflow_core::{Result, ensure, status};

/// The default port of tasks, as Kubeflow has it.
const PORT: u16 = 2222;

pub(super) fn ask(request: &RoleRequest, environment: &Environment) -> Result<Says> {
    let (Some(_), Some(host), Some(jobs)) =
        (environment.get("KUBERNETES_SERVICE_HOST"), environment.get("HOSTNAME"), &request.jobs)
    else {
        return Ok(Says::Nothing);
    };
    let port = match environment.get("FERROFLOW_PORT") {
        Some(text) => text
            .parse()
            .map_err(|_| status!(InvalidArgument, "FERROFLOW_PORT is '{text}', expected a port"))?,
        None => PORT,
    };
    // Pods of other sets run tasks as well; a pod whose flags name the task need not be named after one.
    let bare = host.split('.').next().unwrap_or(host);
    if request.job.is_some() && !jobs.jobs().any(|(job, _)| take_apart(bare, job).is_some()) {
        return Ok(Says::Nothing);
    }
    found(host, jobs, environment.get("FERROFLOW_SERVICE"), request.port.unwrap_or(port)).map(Says::Role)
}

/// A pod's name, taken apart.
struct Pod<'a> {
    /// The name of the set, which precedes the job.
    prefix: &'a str,
    task: TaskName,
    /// The position of the task's number.
    shape: Shape,
}

#[derive(Clone, Copy)]
enum Shape {
    /// `ps-1`: a set of pods.
    Plain,
    /// `worker-0-1`: one replicated job with an index.
    Indexed,
    /// `worker-1-0`: many replicated jobs of one pod each.
    Replicated,
}

impl Shape {
    fn host(self, prefix: &str, task: &TaskName) -> String {
        let (job, number) = (spelled(&task.job), task.task);
        let separator = if prefix.is_empty() { "" } else { "-" };
        match self {
            Shape::Plain => format!("{prefix}{separator}{job}-{number}"),
            Shape::Indexed => format!("{prefix}{separator}{job}-0-{number}"),
            Shape::Replicated => format!("{prefix}{separator}{job}-{number}-0"),
        }
    }
}

/// Spells a job's name as Kubernetes spells names.
fn spelled(job: &str) -> String {
    job.to_ascii_lowercase().replace('_', "-")
}

fn found(host: &str, jobs: &Topology, service: Option<&str>, port: u16) -> Result<Found> {
    // A host name may come with its domain.
    let host = host.split('.').next().unwrap_or(host);
    let pod = jobs.jobs().find_map(|(job, _)| take_apart(host, job));
    let pod = pod.ok_or_else(|| {
        status!(
            InvalidArgument,
            "the pod's name {host} has none of the jobs {jobs} before its number; name its set e.g. \
             train-{}, or add --job_name and --task_index",
            jobs.jobs().next().map_or_else(String::new, |(job, _)| spelled(job))
        )
    })?;
    let in_range = jobs.tasks().any(|task| task == pod.task);
    ensure!(
        in_range,
        InvalidArgument,
        "the pod {host} is number {} of job {}, but the jobs are {jobs}: give --jobs as many tasks as the set has \
         replicas",
        pod.task.task,
        pod.task.job
    );
    let service = service.unwrap_or(if pod.prefix.is_empty() { host } else { pod.prefix });
    let mut cluster = ClusterSpec::new();
    for task in jobs.tasks() {
        // Sets of different kinds may serve one cluster; all that is known of the others' is the own kind.
        let name = pod.shape.host(pod.prefix, &task);
        cluster.add(&task.job, task.task, &format!("{name}.{service}:{port}"))?;
    }
    let notes = vec![format!("pods are reached at <pod>.{service}; FERROFLOW_SERVICE names another service")];
    Ok(Found { task: Some(pod.task), cluster, topology: Some(jobs.clone()), notes, ..Found::default() })
}

fn take_apart<'a>(host: &'a str, job: &str) -> Option<Pod<'a>> {
    let split = |text: &'a str| {
        let (rest, number) = text.rsplit_once('-')?;
        Some((rest, number.parse::<u32>().ok()?))
    };
    let (rest, last) = split(host)?;
    let before = |text: &'a str| match text.strip_suffix(spelled(job).as_str())? {
        "" => Some(""),
        prefix => prefix.strip_suffix('-'),
    };
    if let Some(prefix) = before(rest) {
        return Some(Pod { prefix, task: TaskName::new(job, last), shape: Shape::Plain });
    }
    let (rest, first) = split(rest)?;
    let prefix = before(rest)?;
    let (number, shape) = match (first, last) {
        (0, number) => (number, Shape::Indexed),
        (number, 0) => (number, Shape::Replicated),
        _ => return None,
    };
    Some(Pod { prefix, task: TaskName::new(job, number), shape })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pods_of_every_kind_find_their_place() {
        let jobs: Topology = "chief:1,my_ps:2,worker:3".parse().unwrap();
        let read = |host| found(host, &jobs, Some("svc"), 2222).unwrap();
        let address = |found: &Found, job, task| {
            found.cluster.address(&TaskName::new(job, task)).map(str::to_owned).unwrap()
        };
        let set = read("train-my-ps-1");
        assert_eq!(set.task, Some(TaskName::new("my_ps", 1)));
        assert_eq!(address(&set, "worker", 2), "train-worker-2.svc:2222");
        let bare = read("worker-0.svc.ns.svc.cluster.local");
        assert_eq!(
            (bare.task.clone(), address(&bare, "chief", 0)),
            (Some(TaskName::new("worker", 0)), "chief-0.svc:2222".to_owned())
        );
        let set = read("train-worker-0-2");
        assert_eq!(
            (set.task.clone(), address(&set, "chief", 0)),
            (Some(TaskName::new("worker", 2)), "train-chief-0-0.svc:2222".to_owned())
        );
        assert_eq!(read("train-worker-2-0").task, Some(TaskName::new("worker", 2)));
        let message = |host| found(host, &jobs, None, 1).err().unwrap().message().to_owned();
        assert!(message("train-worker-3").contains("as many tasks as the set has"));
        assert!(message("web-7f9c").contains("has none of the jobs"));
    }

    #[test]
    fn flags_that_name_the_job_are_enough_in_any_pod() {
        let pod = |host: &str| -> Environment {
            [("KUBERNETES_SERVICE_HOST", "10.0.0.1"), ("HOSTNAME", host)].into_iter().collect()
        };
        let jobs: Topology = "ps:1,worker:2".parse().unwrap();
        let mut request = RoleRequest { jobs: Some(jobs), ..RoleRequest::default() };
        assert!(ask(&request, &pod("runner-x7f9c")).is_err());
        request.job = Some("ps".to_owned());
        assert!(matches!(ask(&request, &pod("runner-x7f9c")), Ok(Says::Nothing)));
        assert!(matches!(ask(&request, &pod("train-worker-1")), Ok(Says::Role(_))));
    }
}
