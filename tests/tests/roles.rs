//! Roles, and where tasks learn them: what stock's resolvers say of the same inputs, what our commands say, and tasks that
//! were started with different clusters.

use crate::{binary, stock};
use ferroflow::discovery::{Environment, PortChoice, ReservedPort, Role, RoleRequest, TfConfig, Topology};
use ferroflow::{
    ClusterSpec, Code, DType, Graph, Server, ServerConfig, Session, SessionOptions, TaskName, ops,
};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::time::Duration;

#[test]
fn stock_reads_the_same() {
    let Some(python) = stock::python() else { return };
    let output = Command::new(python).arg(stock::root().join("oracle/roles.py")).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let cases = String::from_utf8(output.stdout).unwrap();
    let cases: Vec<Value> = cases.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(cases.len() > 60, "only {} cases", cases.len());
    let mut wrong = Vec::new();
    for case in &cases {
        let agrees = match case["kind"].as_str().unwrap() {
            "cluster" => {
                same(&case["cluster"], ClusterSpec::from_value(&case["input"]).map(|spec| tasks(&spec)))
            }
            "tf_config" => same_config(case),
            _ => same(&case["role"], slurm(&case["input"])),
        };
        if agrees != case["differs"].is_null() {
            wrong.push(format!("agrees: {agrees}, {case}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Whether stock answers the same, or refuses as well.
fn same(stock: &Value, ours: ferroflow::Result<Value>) -> bool {
    match ours {
        Ok(ours) => stock.get("ok") == Some(&ours),
        Err(_) => stock.get("error").is_some(),
    }
}

fn same_config(case: &Value) -> bool {
    let text = case["input"].as_str();
    let environment: Environment = text.map(|text| ("TF_CONFIG", text)).into_iter().collect();
    let config = match environment.get("TF_CONFIG") {
        Some(text) => TfConfig::parse(text),
        None => Ok(TfConfig::default()),
    };
    let role = Role::resolve(&RoleRequest::default(), &environment);
    let (Ok(config), Ok(role)) = (config, role) else {
        // Stock finds out when it is asked for one thing or another.
        return ["cluster", "job", "index", "master"].iter().any(|field| case[*field].get("error").is_some());
    };
    same(&case["cluster"], Ok(tasks(&role.cluster)))
        && same(&case["job"], Ok(json!(config.job)))
        && same(&case["index"], Ok(json!(config.index)))
        && same(&case["master"], config.master().map(Value::from))
}

fn slurm(input: &Value) -> ferroflow::Result<Value> {
    let variables = input["variables"].as_object().unwrap();
    let environment = variables.iter().map(|(name, value)| (name, value.as_str().unwrap())).collect();
    let jobs = input["jobs"].as_object().unwrap();
    let jobs = Topology::new(jobs.iter().map(|(job, size)| (job.as_str(), size.as_u64().unwrap() as u32)))?;
    let role = Role::resolve(&RoleRequest { jobs: Some(jobs), ..RoleRequest::default() }, &environment)?;
    role.located()?;
    Ok(json!({"cluster": tasks(&role.cluster), "job": role.task.job, "index": role.task.task}))
}

/// Every job as a map, which is how stock's answers are written down.
fn tasks(cluster: &ClusterSpec) -> Value {
    let mut jobs = json!({});
    for (task, address) in cluster.tasks() {
        jobs[task.job][task.task.to_string()] = json!(address);
    }
    jobs
}

#[test]
fn mistakes_come_with_their_fix() {
    let refused = |arguments: &[&str], tf_config: Option<&str>| {
        let mut command = binary::command(&["resolve"]);
        command.args(arguments);
        tf_config.map(|text| command.env("TF_CONFIG", text));
        let output = command.output().unwrap();
        assert!(!output.status.success(), "{arguments:?} {tf_config:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    let check = |arguments: &[&str], fix: &str| {
        let said = refused(arguments, None);
        assert!(said.contains(fix), "{arguments:?}: {said}");
    };
    let lists = ["--ps_hosts=a:1,b:1", "--worker_hosts=c:1"];
    let with = |more: &[&'static str]| [&lists[..], more].concat();
    check(&with(&[]), "choose --job_name and --task_index among ps:0, ps:1, worker:0");
    check(&with(&["--job_name=ps", "--task_index=2"]), "job ps has tasks 0 to 1");
    check(&with(&["--job_name=PS"]), "write ps");
    check(&with(&["--job_name=chef"]), "there is no job chef, choose one of ps, worker");
    check(&["--ps_hosts=a", "--job_name=ps"], "write e.g. a:2222");
    check(&["--ps_hosts=a:70000", "--job_name=ps"], "the largest port is 65535");
    check(&["--ps_hosts=a:1,,b:1", "--job_name=ps"], "remove the comma");
    check(&["--ps_hosts=", "--worker_hosts=", "--job_name=ps"], "--ps_hosts: it names no task");
    check(&["--cluster", r#"{"ps": []}"#, "--job_name=ps"], "--cluster: it names no task");
    check(&["--ps_hosts=a:1", "--worker_hosts=a:1", "--job_name=ps"], "a port of its own");
    check(&["--cluster", r#"{"my-ps": ["a:1"]}"#], "write e.g. my_ps");
    check(&["--ps_host=a:1"], "'--ps_hosts'");
    let config = r#"{"cluster": {"ps": ["a:1", "b:1"]}, "task": {"type": "ps", "index": 1.5, "trial": 0}}"#;
    assert!(Role::resolve(&RoleRequest::default(), &[("TF_CONFIG", config)].into_iter().collect()).is_ok());
    assert!(refused(&[], Some("{'cluster': {}}")).contains("double quotes"));
    for (config, fix) in [
        (r#"{"clustre": {"ps": ["a:1"]}, "task": {"type": "ps", "index": 0}}"#, "did you mean 'cluster'?"),
        (r#"{"cluster": {"ps": ["a:1"]}, "tsk": {"type": "ps", "index": 0}}"#, "did you mean 'task'?"),
        (
            r#"{"cluster": {"ps": ["a:1"]}, "task": {"typ": "ps", "index": 0}}"#,
            "unknown key 'task.typ', did you mean 'type'?",
        ),
        (r#"{"cluster": {"ps": ["a:1"]}, "task": {"type": "ps", "indx": 1}}"#, "did you mean 'index'?"),
        (r#"{"cluster": {"ps": ["a:1"]}, "mood": 1}"#, "unknown key 'mood', expected one of cluster, task"),
        (r#"{"cluster": {"ps": "a:1,b:1"}, "task": {"type": "ps", "index": 0}}"#, r#"write ["a:1","b:1"]"#),
        (
            r#"{"cluster": {"wroker": ["a:1"]}, "task": {"type": "worker", "index": 0}}"#,
            "did you mean wroker?",
        ),
    ] {
        let said = refused(&[], Some(config));
        assert!(said.contains(fix), "{config}: {said}");
    }
    check(&["--cluster", r#"{"cluster": {"ps": ["a:1"]}}"#, "--job_name=ps"], "the form of TF_CONFIG");
    check(&["--cluster", "a:1,b:1", "--job_name=ps"], "a cluster is written as JSON");
    let config = r#"{"cluster": {"worker": ["a:1"]}, "task": {"type": "worker", "index": 3}}"#;
    assert!(refused(&[], Some(config)).contains("job worker has task 0 alone"));
}

#[test]
fn what_was_overridden_is_told() {
    let config = r#"{"cluster": {"ps": ["a:1"]}, "task": {"type": "ps", "index": 0}}"#;
    let flags = ["-worker_hosts=b:1, c:1,", "-job_name=worker", "-task_index", "1", "--output", "json"];
    let output = binary::command(&["resolve"]).args(flags).env("TF_CONFIG", config).output().unwrap();
    let said: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(said["source"], "flags");
    assert_eq!((&said["address"], &said["name"]), (&json!("c:1"), &json!("/job:worker/replica:0/task:1")));
    assert_eq!(said["overridden"], json!([{"source": "TF_CONFIG", "said": "ps:0 in a cluster of 1"}]));
    let back = TfConfig::parse(said["tf_config"].as_str().unwrap()).unwrap();
    assert_eq!(tasks(&back.cluster), json!({"worker": {"0": "b:1", "1": "c:1"}}));
}

/// A process that ends with this value.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// `ferroflow serve` that knows its role from the environment alone, once it is ready.
fn serve(tf_config: &str) -> Process {
    let mut process = binary::command(&["serve", "--log=warn"])
        .env("TF_CONFIG", tf_config)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert!(line.contains("serves"), "{line}");
    Process(process)
}

fn doctor(tf_config: &str, arguments: &[&str]) -> (bool, Vec<Value>) {
    let output = binary::command(&["doctor", "--output", "json", "--timeout", "60"])
        .args(arguments)
        .env("TF_CONFIG", tf_config)
        .output()
        .unwrap();
    let said: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&output.stderr)));
    assert_eq!(said["ok"], output.status.success());
    assert_eq!(said["errors"] == 0, output.status.success());
    (output.status.success(), said["findings"].as_array().unwrap().clone())
}

#[test]
fn a_task_serves_what_tf_config_says_and_the_doctor_finds_what_is_wrong() {
    let ports: Vec<ReservedPort> = (0..3)
        .map(|_| ReservedPort::new(Some(Ipv4Addr::LOCALHOST.into()), PortChoice::Any).unwrap())
        .collect();
    let address = |index: usize| format!("127.0.0.1:{}", ports[index].port());
    let config = |worker: &str, job: &str| {
        let cluster = json!({"ps": [address(0)], "worker": [address(1), worker]});
        json!({"cluster": cluster, "task": {"type": job, "index": 0}}).to_string()
    };
    let right = config(&address(2), "worker");
    let _ps = serve(&config(&address(2), "ps"));
    let directory = std::env::temp_dir();
    let directory = directory.to_str().unwrap();

    let (ok, findings) = doctor(&right, &["--dir", directory]);
    let verdict = |findings: &[Value], check: &str, about: &str| {
        let found = findings.iter().find(|finding| finding["check"] == check && finding["about"] == about);
        found.unwrap_or_else(|| panic!("no {check} of {about} in {findings:#?}"))["verdict"].clone()
    };
    assert!(ok, "{findings:#?}");
    for (check, about) in
        [("agreement", "ps:0"), ("clock", "ps:0"), ("way", "ps:0"), ("directory", directory)]
    {
        assert_eq!(verdict(&findings, check, about), "ok", "{check}");
    }
    assert_eq!(verdict(&findings, "task", "worker:1"), "warning");

    let (ok, findings) = doctor(&right, &["--wait", "0"]);
    assert!(!ok);
    assert_eq!(verdict(&findings, "task", "worker:1"), "error");

    let (ok, findings) = doctor(&config("127.0.0.1:1", "worker"), &["--dir", "/no/such/directory"]);
    assert!(!ok);
    assert_eq!(verdict(&findings, "agreement", "ps:0"), "error");
    assert_eq!(verdict(&findings, "directory", "/no/such/directory"), "error");
    // Only the lists differ, so nothing is said about networks.
    let ways = findings.iter().filter(|finding| finding["check"] == "way" && finding["verdict"] != "ok");
    assert_eq!(ways.count(), 0, "{findings:#?}");
}

#[test]
fn the_doctor_names_each_task_that_training_would_lack_and_why() {
    let ports: Vec<ReservedPort> = (0..3)
        .map(|_| ReservedPort::new(Some(Ipv4Addr::LOCALHOST.into()), PortChoice::Any).unwrap())
        .collect();
    let address = |index: usize| format!("127.0.0.1:{}", ports[index].port());
    // A web server in the place of a task.
    let web = TcpListener::bind("127.0.0.1:0").unwrap();
    let web_address = web.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for connection in web.incoming().flatten() {
            let _ = (&connection).write_all(b"HTTP/1.0 400 Bad Request\r\n\r\n");
        }
    });
    let cluster = json!({
        "ps": [address(0), "no-such-host.invalid:1", web_address],
        "worker": [address(1), address(2)],
    });
    let config = json!({"cluster": cluster, "task": {"type": "worker", "index": 0}}).to_string();
    let output = binary::command(&["doctor"]).env("TF_CONFIG", &config).output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    for part in [
        format!("error    task       ps:0 is not up: nothing listens at {}", address(0)),
        "error    task       ps:1 is not reached at no-such-host.invalid:1: the name".to_owned(),
        format!(
            "error    task       ps:2 is not at {web_address}: what listens there is not a TensorFlow server"
        ),
        format!("warning  task       worker:1 is not up: nothing listens at {}", address(2)),
        "Found 3 errors (task ps:0, task ps:1, task ps:2) and".to_owned(),
        ": training would fail.".to_owned(),
    ] {
        assert!(said.contains(&part), "{part:?} is not in {said}");
    }
    // The second worker is not the chief, which has to be up.
    let second = config.replace(r#""index":0"#, r#""index":1"#);
    let (ok, findings) = doctor(&second, &[]);
    assert!(!ok);
    let chief = findings.iter().find(|finding| finding["about"] == "worker:0").unwrap();
    assert_eq!(chief["verdict"], "error", "{chief}");
}

#[test]
fn a_ping_tells_who_answers_or_why_nobody_does() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let server = start(&listener, "ps", 0, &json!({"ps": [address]}));
    let ping = |address: &str| {
        let output = binary::command(&["ping", address, "--timeout", "60"]).output().unwrap();
        let said = if output.status.success() { output.stdout } else { output.stderr };
        (output.status.code(), String::from_utf8(said).unwrap())
    };
    let (code, said) = ping(&format!("grpc://{address}"));
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("is /job:ps/replica:0/task:0, Ferroflow "), "{said}");
    server.stop();
    drop(listener);
    let (code, said) = ping(&address);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("is not up: nothing listens at"), "{said}");
    assert!(ping("127.0.0.1").1.contains("the port is missing"), "{said}");
}

/// A server of this process.
fn start(listener: &TcpListener, job: &str, task: u32, cluster: &Value) -> Server {
    let config = ServerConfig {
        task: TaskName::new(job, task),
        cluster: ClusterSpec::from_value(cluster).unwrap(),
        compute_threads: 1,
        io_threads: 1,
        ..ServerConfig::default()
    };
    let listeners = vec![listener.try_clone().unwrap()];
    Server::start(config, ferroflow::registry(), listeners, std::future::pending()).unwrap()
}

#[test]
fn tasks_that_were_started_with_different_clusters_do_not_train() {
    let listeners: Vec<TcpListener> = (0..3).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
    let addresses: Vec<String> =
        listeners.iter().map(|listener| listener.local_addr().unwrap().to_string()).collect();
    let right = json!({"ps": [addresses[0]], "worker": [addresses[1], addresses[2]]});
    let wrong = json!({"ps": [addresses[0]], "worker": [addresses[1], "127.0.0.1:1"]});
    let less = json!({"ps": [addresses[0]]});
    let workers = [start(&listeners[1], "worker", 0, &right), start(&listeners[2], "worker", 1, &right)];
    let graph = Graph::new();
    let sum = (&graph.scope().constant([1.0f32, 2.0]).unwrap() + 1.0).unwrap();
    let options = || SessionOptions::new().open_timeout(Duration::from_secs(60));
    let run = |options: SessionOptions| {
        Session::with_options(workers[0].target(), &graph, options).and_then(|session| session.eval(&sum))
    };

    let ps = start(&listeners[0], "ps", 0, &wrong);
    let refused = run(options()).unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument, "{refused}");
    for part in ["/job:ps/replica:0/task:0", "/job:worker/task:1", "127.0.0.1:1 there", "the same one"] {
        assert!(refused.message().contains(part), "{refused}");
    }
    // Where the task that they disagree about takes no part, nothing is wrong.
    run(options().device_filters(["/job:ps", "/job:worker/task:0"])).unwrap();
    ps.stop();

    let ps = start(&listeners[0], "ps", 0, &less);
    run(options()).unwrap();
    ps.stop();
}

#[test]
fn lists_in_another_order_are_told() {
    let listeners: Vec<TcpListener> = (0..2).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
    let addresses: Vec<String> =
        listeners.iter().map(|listener| listener.local_addr().unwrap().to_string()).collect();
    let [first, second] = [&listeners[0], &listeners[1]];
    let master = start(first, "worker", 0, &json!({"worker": [addresses[0], addresses[1]]}));
    let other = start(second, "worker", 0, &json!({"worker": [addresses[1], addresses[0]]}));
    let refused = Session::connect(master.target(), &Graph::new()).map(drop).unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument, "{refused}");
    for part in ["answers at", "/job:worker/task:0 is at", "the same one"] {
        assert!(refused.message().contains(part), "{refused}");
    }
    drop((master, other));
}

/// `ferroflow serve` with these arguments, its target, and what it logs.
fn serve_and_listen(arguments: &[String]) -> (Process, String, BufReader<ChildStderr>) {
    let mut process = binary::command(&["serve"])
        .args(arguments)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let target = line.trim().rsplit(' ').next().unwrap_or_default().to_owned();
    let said = BufReader::new(process.stderr.take().unwrap());
    (Process(process), target, said)
}

/// The first line about a wait.
fn first_word(said: BufReader<ChildStderr>, about: &str) -> String {
    let about = format!("Waiting for {about}");
    let word = said.lines().map_while(Result::ok).find(|line| line.contains(&about));
    word.expect("the server speaks before it ends")
}

#[test]
fn a_server_says_whom_a_session_waits_for() {
    let ports: Vec<ReservedPort> = (0..2)
        .map(|_| ReservedPort::new(Some(Ipv4Addr::LOCALHOST.into()), PortChoice::Any).unwrap())
        .collect();
    let address = |index: usize| format!("127.0.0.1:{}", ports[index].port());
    let hosts = [format!("--ps_hosts={}", address(0)), format!("--worker_hosts={}", address(1))];
    let more = ["--job_name=worker", "--log=info"].map(str::to_owned);
    let (process, target, said) = serve_and_listen(&[hosts, more].concat());
    let client = std::thread::spawn(move || {
        let options = SessionOptions::new().open_timeout(Duration::from_secs(120));
        Session::with_options(target.as_str(), &Graph::new(), options).map(drop)
    });
    let word = first_word(said, "/job:ps");
    assert!(word.contains("/job:ps/replica:0/task:0 for"), "{word}");
    assert!(word.contains(&address(0)), "{word}");
    drop(process);
    assert!(client.join().unwrap().is_err());
}

#[test]
fn a_server_says_which_step_waits() {
    let (process, target, said) = serve_and_listen(&["--port=0", "--log=debug"].map(str::to_owned));
    let client = std::thread::spawn(move || {
        let graph = Graph::new();
        let s = graph.scope();
        let queue = ops::fifo_queue_v2(&s, [DType::Float])?;
        let element = ops::queue_dequeue_v2(&s, queue, [DType::Float])?.remove(0);
        Session::connect(target.as_str(), &graph)?.eval(&element)
    });
    let word = first_word(said, "step");
    assert!(word.contains("of session"), "{word}");
    drop(process);
    assert!(client.join().unwrap().is_err());
}
