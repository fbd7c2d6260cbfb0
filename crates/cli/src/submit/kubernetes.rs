//! Manifests for Kubernetes: pods whose names are known in advance, each told its role by `TF_CONFIG`.
//!
//! Served jobs, by default the parameter servers, run `ferroflow serve`, all other tasks the program: the image must hold
//! both. Every pod of a job has the same template; its number comes from a label or annotation that the controller sets,
//! through the downward API.

mod jobset;
mod plain;
mod pod;
mod tfjob;

use super::{Tool, Training, names, one_word, yaml};
use crate::placeholders;
use clap::ValueEnum;
use serde_json::Value;

/// Arguments of `ferroflow submit k8s`.
#[derive(clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    training: Training,

    /// Run this image, which holds the program and ferroflow
    #[arg(long)]
    image: String,

    /// Run the pods by this kind of objects
    #[arg(long, value_enum, default_value_t = Flavor::Plain)]
    flavor: Flavor,

    /// Use this namespace [default: the one that kubectl uses]
    #[arg(long)]
    namespace: Option<String>,

    /// Let every task listen on this port
    #[arg(long, default_value_t = 2222, value_parser = clap::value_parser!(u16).range(1..))]
    port: u16,

    /// Request this many processors for each task, e.g. 2 or 500m
    #[arg(long, value_name = "QUANTITY")]
    cpus_per_task: Option<String>,

    /// Request this much memory for each task, e.g. 4Gi
    #[arg(long, value_name = "QUANTITY")]
    mem: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Flavor {
    /// A StatefulSet of parameter servers, indexed Jobs, a headless Service: no operator needed
    Plain,
    /// A TFJob of Kubeflow's training operator
    Tfjob,
    /// A JobSet
    Jobset,
}

/// A training with its names checked.
struct Cluster<'a> {
    args: &'a Args,
    name: String,
    jobs: Vec<Job>,
}

/// Tasks with one template.
struct Job {
    /// The name in programs and device names.
    name: String,
    /// The name as a label of DNS.
    label: String,
    count: u32,
    /// True if its tasks are Ferroflow servers instead of running the program.
    serves: bool,
}

impl Job {
    /// Returns whether its tasks never end by themselves, as parameter servers do not.
    fn stays(&self) -> bool {
        self.serves || self.name == "ps"
    }
}

pub(super) fn run(args: &Args) -> Result<(), String> {
    let name = args.training.label()?;
    let text = manifests(args, name.clone())?;
    let mut tool = vec!["kubectl", "apply"];
    if let Some(namespace) = &args.namespace {
        tool.extend(["--namespace", namespace]);
    }
    tool.push("--filename");
    let tool = Tool {
        command: &tool,
        place: "kubectl reaches the cluster",
        package: "Kubernetes; see https://kubernetes.io/docs/tasks/tools",
    };
    let file = args.training.hand_over(&format!("{name}.yaml"), &text, &tool)?;
    if args.flavor == Flavor::Plain {
        let file = super::slurm::quote(&file.display().to_string());
        println!("When the training is done, remove the servers with: kubectl delete --filename {file}");
    }
    Ok(())
}

fn manifests(args: &Args, name: String) -> Result<String, String> {
    one_word("--image", &args.image)?;
    if let Some(namespace) = &args.namespace
        && names::label(namespace).as_ref() != Ok(namespace)
    {
        return Err(format!(
            "--namespace: '{namespace}' is not the name of a namespace; write lower-case letters, digits and dashes"
        ));
    }
    let cluster = Cluster { jobs: jobs(&args.training)?, name, args };
    let documents = match args.flavor {
        Flavor::Plain => plain::manifests(&cluster)?,
        Flavor::Tfjob => vec![tfjob::manifest(&cluster)?],
        Flavor::Jobset => vec![jobset::manifest(&cluster)?],
    };
    Ok(yaml::documents(&documents))
}

fn jobs(training: &Training) -> Result<Vec<Job>, String> {
    placeholders::check(&training.program)?;
    let served = training.served()?;
    let mut jobs: Vec<Job> = Vec::new();
    for (name, count) in training.sizes()? {
        let label = names::label(name)?;
        if let Some(other) = jobs.iter().find(|job| job.label == label) {
            return Err(format!(
                "jobs {} and {name} would both be called {label}; rename one of them",
                other.name
            ));
        }
        let serves = served.contains(&name);
        jobs.push(Job { name: name.to_owned(), label, count, serves });
    }
    if training.program.is_empty() && jobs.iter().any(|job| !job.serves) {
        return Err("there is no program for the tasks to run; name it after --".to_owned());
    }
    Ok(jobs)
}

impl Cluster<'_> {
    /// Returns the job whose end is the training's: the chief, or the workers.
    fn leader(&self) -> Option<&Job> {
        let find = |name: &str| self.jobs.iter().find(|job| job.name == name);
        find("chief").or_else(|| find("master")).or_else(|| find("worker")).or_else(|| find("evaluator"))
    }

    /// Returns the name, namespace and labels of an object.
    fn metadata(&self, name: &str) -> Value {
        let mut metadata = serde_json::json!({"name": name, "labels": self.labels()});
        if let Some(namespace) = &self.args.namespace {
            metadata["namespace"] = namespace.as_str().into();
        }
        metadata
    }

    fn labels(&self) -> Value {
        serde_json::json!({"app.kubernetes.io/name": "ferroflow", "app.kubernetes.io/instance": self.name})
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::submit::parsed;

    fn written(line: &str) -> Result<String, String> {
        let args: Args = parsed(["--image", "r/i:1"].into_iter().chain(line.split_whitespace()));
        manifests(&args, args.training.label()?)
    }

    #[test]
    fn mistakes_are_told() {
        let error = |line: &str| written(line).unwrap_err();
        assert!(error("--jobs ps:1,worker:1").contains("name it after --"));
        assert!(
            error("--jobs worker:1 --flavor tfjob -- x {address}").contains("the operator chooses addresses")
        );
        assert!(error("--jobs a_b:1,A_B:1 -- x").contains("would both be called a-b"));
        assert!(error("--jobs ps:1 --namespace A").contains("not the name of a namespace"));
        let name = "n".repeat(60);
        for flavor in ["plain", "tfjob", "jobset"] {
            let message =
                error(&format!("--jobs chief:1,ps:1,worker:11 --flavor {flavor} --name {name} -- x"));
            assert!(message.contains("too long"), "{flavor}: {message}");
        }
        assert!(error("--jobs trainer:1 --flavor tfjob -- x").contains("not a replica type"));
    }

    #[test]
    fn placeholders_and_dollars_of_the_program_survive() {
        let text = written("--jobs worker:2 -- run --n={task} --of={job} $(HOME)").unwrap();
        let words = ["- run\n", "- \"--n=$(FERROFLOW_TASK)\"\n", "- \"--of=worker\"\n", "- \"$$(HOME)\"\n"];
        assert!(words.iter().all(|word| text.contains(word)), "{text}");
        let line = "--jobs ps:1,worker:1 --name t -- run --ps={ps_hosts} {address} {{task}}";
        let text = written(line).unwrap();
        let words =
            ["- \"--ps=t-ps-0.t:2222\"\n", "- \"t-worker-$(FERROFLOW_TASK).t:2222\"\n", "- \"{task}\"\n"];
        assert!(words.iter().all(|word| text.contains(word)), "{text}");
    }

    #[test]
    fn the_servers_of_programs_in_python_are_chosen() {
        let switch = |line: &str| {
            let text = written(line).unwrap();
            let (_, rest) = text.split_once("name: FERROFLOW\n").expect("the program is told");
            assert!(!rest.contains("name: FERROFLOW\n"), "servers need not know: {text}");
            rest.lines().next().unwrap_or_default().trim().to_owned()
        };
        assert_eq!(switch("--jobs ps:1,worker:1 -- python x.py"), "value: auto");
        assert_eq!(switch("--jobs ps:1,worker:1 --stock-servers -- python x.py"), "value: \"0\"");
    }

    #[test]
    fn servers_are_probed_and_programs_are_not() {
        for flavor in ["plain", "tfjob", "jobset"] {
            let probes = |line: &str| {
                let text = written(&format!("--flavor {flavor} {line}")).unwrap();
                let count = |probe: &str| text.matches(probe).count();
                (count("livenessProbe"), count("readinessProbe"), count("- ping\n"))
            };
            assert_eq!(probes("--jobs ps:2,worker:2 -- run"), (1, 1, 1), "{flavor}");
            assert_eq!(probes("--jobs ps:2,worker:2 --serve none -- run"), (0, 0, 0), "{flavor}");
        }
    }
}
